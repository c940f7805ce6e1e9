#include "server/prepare.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/video_file.h"
#include "media/image_decode.h"
#include "server/fetch_url.h"
#include "server/local_media.h"
#include "server/media_url.h"
#include "unicode/utf8.h"

namespace triptych::server {
namespace {

using Clock = std::chrono::steady_clock;

// What "detail": "low" allows of a picture.
constexpr std::int64_t kLowDetail_pixels = 512 * 512;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check_cancelled(const PrepareContext& context) {
  if (context.is_cancelled && context.is_cancelled()) throw ApiError(499, "cancelled", "the client has left");
}

ApiError media_error(const Error& error, const std::string& param) {
  switch (error.code()) {
    case ErrorCode::kUnsupported:
      return {415, "unsupported_image", error.what(), param};
    case ErrorCode::kInvalidArgument:
      return {413, "image_too_large", error.what(), param};
    case ErrorCode::kInvalidFile:
      return {400, "invalid_image", error.what(), param};
    default:
      return ApiError::of(error, param);
  }
}

// What a URL of a part stands for.
template <typename Parse>
auto read_url(const PrepareContext& context, const std::string& url, const std::string& param, Parse parse)
    -> decltype(parse(url)) {
  const std::filesystem::path& root = context.rules.local_root;
  try {
    if (is_file_url(url) && !root.empty())
      return {read_local_media(root, path_of_file_url(url), DecodeLimits().max_file_bytes)};
    if (is_data_url(url)) return parse(url);
  } catch (const Error& error) {
    const bool is_type = error.code() == ErrorCode::kUnsupported;
    throw ApiError(is_type ? 415 : 400, "invalid_image", error.what(), param);
  }
  const bool names_place = url.find("://") < 16;
  throw ApiError(400, names_place ? "url_not_allowed" : "invalid_value",
                 names_place ? kPlaceNotAllowed : "expected a data URL such as data:image/png;base64,...",
                 param);
}

std::string bytes_of(const PrepareContext& context, const std::string& url, const std::string& param) {
  return read_url(context, url, param, [](const std::string& text) { return parse_data_url(text).bytes; });
}

std::vector<std::string> parts_of_video(const PrepareContext& context, const WirePart& part) {
  if (part.fetched) return {*part.fetched};
  if (part.frame_urls.empty()) return read_url(context, part.url, part.param, parse_video_data_url);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < part.frame_urls.size(); ++i)
    out.push_back(bytes_of(context, part.frame_urls[i], fmt::format("{}[{}]", part.param, i)));
  return out;
}

MediaInput decode_video(const PrepareContext& context, const WirePart& part, std::size_t number,
                        std::uint64_t& n_pixels) {
  const ModelInfo& info = context.model.info();
  try {
    check_takes_videos(info);
  } catch (const Error& error) {
    throw ApiError::of(error, part.param);
  }
  std::vector<std::string> parts = parts_of_video(context, part);
  std::uint64_t n_bytes = 0;
  for (const std::string& one : parts) n_bytes += one.size();
  VideoLimits limits;
  limits.picture.max_pixels = context.rules.max_image_pixels;
  limits.max_pixels = context.rules.max_request_pixels - std::min(n_pixels, context.rules.max_request_pixels);
  try {
    const VideoFile video = VideoFile::of_bytes(std::move(parts), "video " + std::to_string(number), limits);
    MediaInput out = video.read(info.video_sampling, part.video);
    n_pixels += static_cast<std::uint64_t>(video.width_px()) * static_cast<std::uint64_t>(video.height_px()) *
                out.frames.size();
    context.metrics.count_image(n_bytes);
    return out;
  } catch (const Error& error) {
    throw media_error(error, part.param);
  }
}

MediaInput decode(const PrepareContext& context, const WirePart& part, std::size_t number,
                  std::uint64_t& n_pixels) {
  const std::string own = part.fetched ? std::string() : bytes_of(context, part.url, part.param);
  const std::string& data = part.fetched ? *part.fetched : own;
  const std::string name = "image " + std::to_string(number);
  DecodeLimits limits;
  limits.max_pixels = context.rules.max_image_pixels;
  const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
  const auto begin = Clock::now();
  try {
    const ImageInfo info = probe_image(bytes, limits, name);
    n_pixels += static_cast<std::uint64_t>(info.width_px) * static_cast<std::uint64_t>(info.height_px);
    if (n_pixels > context.rules.max_request_pixels)
      fail(ErrorCode::kInvalidArgument, "the pictures of a request may have {} pixels together",
           context.rules.max_request_pixels);
    MediaInput out;
    out.frames.push_back(decode_image(bytes, limits, name));
    out.decode_ms = seconds_since(begin) * 1e3;
    context.metrics.count_image(data.size());
    return out;
  } catch (const Error& error) {
    throw media_error(error, part.param);
  }
}

}  // namespace

bool names_hosts(const ChatWire& wire) {
  for (const WireMessage& message : wire.messages)
    for (const WirePart& part : message.parts)
      if (part.kind != ContentPart::Kind::kText && is_fetch_url(part.url)) return true;
  return false;
}

void fetch_media(const PrepareContext& context, const MediaFetcher& fetcher, MediaFetcher::Budget& budget,
                 ChatWire& wire) {
  for (WireMessage& message : wire.messages)
    for (WirePart& part : message.parts) {
      if (part.kind == ContentPart::Kind::kText || !is_fetch_url(part.url)) continue;
      const auto begin = Clock::now();
      part.fetched = std::make_shared<const std::string>(fetcher.fetch(part.url, part.param, budget));
      context.metrics.downloaded(seconds_since(begin), part.fetched->size());
    }
}

PreparedRequest prepare_chat(const PrepareContext& context, const ChatWire& wire) {
  if (wire.tools && !context.model.chat_template().capabilities().tools)
    throw ApiError(400, "unsupported_value", "tools: the chat template of this model knows none", "tools");
  ChatRequest request;
  request.media_options = wire.common.media_options;
  request.cache_salt = wire.common.cache_salt;
  request.add_generation_prompt = wire.add_generation_prompt;
  request.continue_final_message = wire.continue_final_message;
  request.tools = wire.tools;
  request.template_variables = wire.template_variables;
  std::uint64_t n_pixels = 0;
  std::size_t n_low = 0;
  const auto media_begin = Clock::now();
  for (const WireMessage& message : wire.messages) {
    ChatMessage& out = request.messages.emplace_back();
    out.role = message.role;
    out.content_is_string = message.content_is_string;
    out.content_is_null = message.content_is_null;
    out.fields = message.fields;
    for (const WirePart& part : message.parts) {
      out.parts.push_back({.kind = part.kind, .text = part.text});
      if (part.kind == ContentPart::Kind::kText) continue;
      check_cancelled(context);
      const auto read = part.kind == ContentPart::Kind::kVideo ? decode_video : decode;
      request.media.push_back(read(context, part, request.media.size() + 1, n_pixels));
      n_low += part.detail == "low" ? 1 : 0;
    }
  }
  if (n_low > 0 && n_low == request.media.size() && request.media_options.max_pixels == 0 &&
      context.model.info().takes_pixel_limits)
    request.media_options.max_pixels = kLowDetail_pixels;
  check_cancelled(context);
  const double media_s = seconds_since(media_begin);
  const auto begin = Clock::now();
  try {
    PreparedRequest out = context.model.prepare(request, context.has_rows);
    context.metrics.prepared(media_s, request.media.size(), seconds_since(begin));
    for (const MediaItem& item : out.media)
      if (!item.frames) context.metrics.count_preprocessed();
    return out;
  } catch (const Error& error) {
    throw ApiError::of(error, "messages");
  }
}

PreparedRequest prepare_completion(const PrepareContext& context, const CompletionPrompt& prompt) {
  const auto begin = Clock::now();
  try {
    PreparedRequest out;
    if (prompt.is_ids) {
      for (const std::int32_t id : prompt.ids)
        if (id >= context.model.n_usable_ids())
          fail(ErrorCode::kInvalidArgument, "token id {}: the vocabulary has {}", id,
               context.model.n_usable_ids());
      if (static_cast<std::int64_t>(prompt.ids.size()) > context.model.info().max_context_tokens)
        fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}",
             prompt.ids.size(), context.model.info().max_context_tokens);
      out.token_ids = prompt.ids;
      out.layout = context.model.model().expand_prompt(prompt.ids, {});
    } else {
      if (!utf8::is_valid(prompt.text)) fail(ErrorCode::kInvalidArgument, "the prompt is not valid UTF-8");
      out = context.model.prepare_prompt(prompt.text, {});
    }
    if (out.layout.input_ids.empty()) fail(ErrorCode::kInvalidArgument, "the prompt is empty");
    context.metrics.prepared(0, 0, seconds_since(begin));
    return out;
  } catch (const Error& error) {
    throw ApiError::of(error, "prompt");
  }
}

void prepare_constraint(const LoadedModel& model, const SamplingParams& params) {
  if (!params.constraint.empty()) model.token_masker().constrain(params.constraint);
}

PreparedRequest copy_of(const PreparedRequest& request) {
  PreparedRequest out;
  out.prompt = request.prompt;
  out.token_ids = request.token_ids;
  out.layout = request.layout;
  for (const MediaItem& item : request.media)
    out.media.push_back({item.plan, Tensor::copy_of(item.pixels.view()), item.text_ids, item.fingerprint,
                         item.image_tokens, item.frames});
  out.cache_salt = request.cache_salt;
  out.queue = request.queue;
  out.arrival = request.arrival;
  out.image_decode_ms = request.image_decode_ms;
  out.preprocess_ms = request.preprocess_ms;
  return out;
}

}  // namespace triptych::server
