#include "benchmark/serve_requests.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/profile.h"
#include "base/rng.h"
#include "base/stopwatch.h"
#include "benchmark/test_jpeg.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxEncoded_px = std::int64_t{1} << 31;   // all sizes together, of pictures made up
constexpr std::uint64_t kPrefixStream = std::uint64_t{1} << 62;  // of random numbers, apart from requests'
constexpr std::size_t kTemplate_tokens = 512;  // that a chat template may add to a text, generously

// Pixels differ between groups in the first ones alone, which is enough for everything that compares
// pictures.
void stamp(Image& image, std::int64_t group) {
  Rng rng(static_cast<std::uint64_t>(group), 2);
  const std::size_t n = std::min<std::size_t>(image.rgb.size(), 24);
  for (std::size_t i = 0; i < n; ++i) image.rgb[i] = static_cast<std::uint8_t>(rng.next_u32());
}

}  // namespace

ServeRequests::ServeRequests(const LoadedModel& model, const std::vector<TraceRequest>& trace,
                             const MediaOptions& media, std::filesystem::path folder)
    : model_(model), trace_(trace), media_(media), folder_(std::move(folder)) {
  std::int64_t n_pixels = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) try {
      for (const TracePicture& picture : trace[i].pictures) {
        if (!picture.file.empty()) continue;
        const auto [place, is_new] = jpegs_.try_emplace({picture.width_px, picture.height_px});
        if (!is_new) continue;
        n_pixels += std::int64_t{picture.width_px} * picture.height_px;
        if (n_pixels > kMaxEncoded_px)
          fail(ErrorCode::kInvalidArgument,
               "the sizes of pictures are {} pixels together, at most {} are made", n_pixels, kMaxEncoded_px);
        place->second = make_test_jpeg(picture.width_px, picture.height_px);
      }
      if (!trace[i].prompt.empty()) static_cast<void>(model.tokenizer());  // throws when there is none
      max_context_tokens_ = std::max(max_context_tokens_, tokens_of(trace[i]));
    } catch (const Error& error) {
      throw error.with_context(fmt::format("request {} of the trace", i + 1));
    }
}

// Of prompt and answer; the most that a text may have.
std::int64_t ServeRequests::tokens_of(const TraceRequest& request) const {
  std::int64_t out = request.answer_tokens + request.prompt_tokens;
  for (const TracePicture& picture : request.pictures) {
    MediaMeta meta{.width_px = picture.width_px, .height_px = picture.height_px};
    if (!picture.file.empty()) {
      const std::filesystem::path file = folder_ / picture.file;
      const ImageInfo info = probe_image(MappedFile::open(file)->bytes(), {}, file.string());
      meta.width_px = info.width_px;
      meta.height_px = info.height_px;
    }
    out += model_.model().plan_media(meta, media_).n_prompt_tokens;
  }
  if (request.prompt.empty()) return out;
  return std::min(out + static_cast<std::int64_t>(request.prompt.size() + kTemplate_tokens),
                  model_.info().max_context_tokens);
}

MediaInput ServeRequests::decode(const TracePicture& picture) const {
  const ProfileZone zone("image decode");
  const Stopwatch watch;
  MediaInput out;
  if (picture.file.empty()) {
    out.frames.push_back(decode_image(jpegs_.at({picture.width_px, picture.height_px}), {}, "picture"));
    stamp(out.frames.front(), picture.group);
  } else {
    const std::filesystem::path file = folder_ / picture.file;
    out.frames.push_back(decode_image(MappedFile::open(file)->bytes(), {}, file.string()));
    out.name = file.filename().string();
  }
  out.decode_ms = watch.ms();
  return out;
}

// The prefix that its group shares, then a placeholder for each picture, then tokens of its own.
std::vector<std::int32_t> ServeRequests::ids_of(const TraceRequest& request, std::size_t index) const {
  const ModelInfo& info = model_.info();
  const auto n_ids = static_cast<std::uint64_t>(model_.n_usable_ids());
  const auto is_control = [&](std::int32_t id) {
    return id == info.image_token_id || id == info.video_token_id ||
           std::find(info.never_sample.begin(), info.never_sample.end(), id) != info.never_sample.end();
  };
  const auto add_text = [&](std::vector<std::int32_t>& to, std::int64_t n, std::uint64_t stream) {
    Rng rng(0, stream);
    while (n > 0) {
      const auto id = static_cast<std::int32_t>(rng.below(n_ids));
      if (is_control(id)) continue;
      to.push_back(id);
      --n;
    }
  };
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(request.prompt_tokens) + request.pictures.size());
  add_text(out, request.prefix_tokens, kPrefixStream + static_cast<std::uint64_t>(request.prefix_group));
  out.insert(out.end(), request.pictures.size(), info.image_token_id);
  add_text(out, request.prompt_tokens - request.prefix_tokens, index);
  return out;
}

PreparedRequest ServeRequests::prepare(std::size_t index) const {
  const TraceRequest& request = trace_[index];
  std::vector<MediaInput> media;
  for (const TracePicture& picture : request.pictures) media.push_back(decode(picture));
  if (request.prompt.empty()) return model_.prepare_ids(ids_of(request, index), media, media_);
  ChatRequest chat;
  ChatMessage message;
  message.role = "user";
  for (std::size_t i = 0; i < media.size(); ++i) message.parts.push_back({ContentPart::Kind::kImage, ""});
  message.parts.push_back({ContentPart::Kind::kText, request.prompt});
  chat.messages.push_back(std::move(message));
  chat.media = std::move(media);
  chat.media_options = media_;
  return model_.prepare(chat);
}

}  // namespace triptych
