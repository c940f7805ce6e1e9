// From a conversation to what the engine runs: the chat template, tokens, plans and pixels of its media.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/profile.h"
#include "base/stopwatch.h"
#include "engine/load.h"
#include "engine/model_fingerprint.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

// A piece of the vocabulary that is no added token would be found only by chance.
bool is_added_token(const Tokenizer& tokenizer, const std::string& content, std::int32_t id) {
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.content == content) return token.id == id;
  return false;
}

// The vocabulary has no placeholder: those of the template become cuts.
void add_placeholders(std::string_view text, std::string_view placeholder, std::int32_t id,
                      std::span<const ByteRange> typed, std::vector<TypedTag>& cuts) {
  for (std::size_t at = text.find(placeholder); at != std::string_view::npos;) {
    const std::size_t end = at + placeholder.size();
    const bool is_typed = std::any_of(typed.begin(), typed.end(),
                                      [&](const ByteRange& r) { return at < r.end && end > r.begin; });
    if (!is_typed) cuts.push_back({at, end, {id}});
    at = text.find(placeholder, is_typed ? at + 1 : end);
  }
  std::sort(cuts.begin(), cuts.end(), [](const TypedTag& a, const TypedTag& b) { return a.begin < b.begin; });
}

// The tokens of the cuts, and between them each piece of text tokenized by itself.
std::vector<std::int32_t> encode_around(const Tokenizer& tokenizer, std::string_view text,
                                        std::span<const TypedTag> cuts, const EncodeOptions& options) {
  if (cuts.empty()) return tokenizer.encode(text, options);
  std::vector<std::int32_t> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i].begin : text.size();
    std::vector<ByteRange> inside;
    for (const ByteRange& r : options.plain_text)
      if (r.end > begin && r.begin < end)
        inside.push_back({std::max(r.begin, begin) - begin, std::min(r.end, end) - begin});
    EncodeOptions piece = options;
    piece.plain_text = inside;
    piece.add_special_tokens = options.add_special_tokens && i == 0;
    if (begin < end || i == 0) {
      const auto ids = tokenizer.encode(text.substr(begin, end - begin), piece);
      out.insert(out.end(), ids.begin(), ids.end());
    }
    if (i == cuts.size()) break;
    out.insert(out.end(), cuts[i].ids.begin(), cuts[i].ids.end());
    begin = cuts[i].end;
  }
  return out;
}

// What the template printed for a video becomes what the model reads there: of the i-th placeholder the i-th
// video's. Counts that differ are the model's to complain of.
std::vector<RenderedSpan> with_video_texts(const Model& model, std::vector<RenderedSpan> spans,
                                           std::span<const MediaPlan> plans) {
  const std::string& placeholder = model.info().video_placeholder;
  if (placeholder.empty()) return spans;
  auto plan = plans.begin();
  for (RenderedSpan& span : spans) {
    if (span.is_user_text) continue;
    for (std::size_t at = span.text.find(placeholder); at != std::string::npos;
         at = span.text.find(placeholder, at)) {
      plan = std::find_if(plan, plans.end(), [](const MediaPlan& p) { return p.meta.is_video; });
      if (plan == plans.end()) return spans;
      const std::string text = model.video_text(*plan++);
      span.text.replace(at, placeholder.size(), text);
      at += text.size();
    }
  }
  return spans;
}

}  // namespace

void check_takes_videos(const ModelInfo& info) {
  if (!info.video_placeholder.empty()) return;
  std::string families;
  for (const ModelRegistry::Family& family : ModelRegistry::global().families())
    if (family.takes_videos) families += (families.empty() ? "" : ", ") + family.architectures.front();
  fail(ErrorCode::kUnsupported, "{} does not take videos; these do: {}", info.architecture, families);
}

std::vector<std::int32_t> LoadedModel::tokenize(const std::vector<RenderedSpan>& spans,
                                                std::span<const MediaPlan> plans) const {
  const ProfileZone zone("tokenizer");
  const ModelInfo& info = this->info();
  std::string text;
  std::vector<ByteRange> typed;
  std::vector<TypedTag> cuts;  // what becomes tokens of its own
  for (const RenderedSpan& span : spans) {
    if (span.is_user_text) typed.push_back({text.size(), text.size() + span.text.size()});
    for (TypedTag& tag : model_->find_typed_tags(span.text, plans))
      cuts.push_back({tag.begin + text.size(), tag.end + text.size(), std::move(tag.ids)});
    text += span.text;
  }
  std::vector<std::string> never = info.never_typed;
  for (const std::string* placeholder : {&info.image_placeholder, &info.video_placeholder})
    if (!placeholder->empty()) never.push_back(*placeholder);
  EncodeOptions options{
      .add_special_tokens = plans.empty() ? info.add_special_tokens : info.add_special_tokens_with_media,
      .plain_text = typed,
      .never_in_plain_text = never,
      .allowed_in_plain_text = info.typeable_specials};
  // A template that writes the first token itself must not get it twice (transformers' ProcessorMixin does
  // the same).
  if (const auto bos = tokenizer_->bos_id()) {
    const std::string content = tokenizer_->id_to_token(*bos);
    if (!content.empty() && text.rfind(content, 0) == 0 &&
        (typed.empty() || typed.front().begin >= content.size()))
      options.add_special_tokens = false;
  }
  if (!info.image_placeholder.empty() &&
      !is_added_token(*tokenizer_, info.image_placeholder, info.image_token_id))
    add_placeholders(text, info.image_placeholder, info.image_token_id, typed, cuts);
  return encode_around(*tokenizer_, text, cuts, options);
}

std::vector<MediaPlan> LoadedModel::plan_all(const std::vector<MediaInput>& media,
                                             const MediaOptions& options) const {
  const ModelInfo& info = this->info();
  if (info.max_images >= 0 && static_cast<std::int64_t>(media.size()) > info.max_images)
    fail(ErrorCode::kInvalidArgument, "{} takes {} image{} in a prompt, got {}", info.architecture,
         info.max_images, info.max_images == 1 ? "" : "s", media.size());
  options.image_tokens.validate();
  std::vector<MediaPlan> plans;
  for (const MediaInput& input : media) {
    if (input.frames.empty()) fail(ErrorCode::kInvalidArgument, "a video needs at least one frame");
    if (input.is_video) check_takes_videos(info);
    plans.push_back(model_->plan_media({.width_px = input.frames.front().width_px,
                                        .height_px = input.frames.front().height_px,
                                        .n_frames = static_cast<int>(input.frames.size()),
                                        .frames_per_s = input.frames_per_s,
                                        .frame_times_s = input.frame_times_s,
                                        .is_video = input.is_video,
                                        .name = input.name},
                                       options));
  }
  return plans;
}

void LoadedModel::complete(PreparedRequest& out, const std::vector<MediaInput>& media,
                           std::span<const MediaPlan> plans, const MediaContext& context) const {
  out.layout = model_->expand_prompt(out.token_ids, plans);
  if (static_cast<std::int64_t>(out.layout.input_ids.size()) >
      info().max_context_tokens)  // before any pixels
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}",
         out.layout.input_ids.size(), info().max_context_tokens);
  const ProfileZone zone("preprocess");
  const Stopwatch watch;
  for (std::size_t i = 0; i < media.size(); ++i) {
    out.media.push_back(prepare_item(media[i], plans[i], context));
    out.image_decode_ms += media[i].decode_ms;
  }
  out.preprocess_ms = watch.ms();
}

MediaItem LoadedModel::prepare_item(const MediaInput& input, const MediaPlan& plan,
                                    const MediaContext& context) const {
  MediaItem item;
  item.plan = plan;
  item.fingerprint = media_fingerprint(fingerprint_, input, plan, context.cache_salt);
  item.image_tokens = context.options.image_tokens;
  if (media_text_tokenizer_) item.text_ids = media_text_tokenizer_->encode(context.user_text);
  if (context.has_rows != nullptr && *context.has_rows && (*context.has_rows)(item)) {
    item.frames = std::make_shared<const std::vector<Image>>(input.frames);
  } else {
    item.pixels = model_->preprocess(input.frames, plan, media_pool_.get());
  }
  return item;
}

PreparedRequest LoadedModel::prepare_spans(const std::vector<RenderedSpan>& spans,
                                           const std::vector<MediaInput>& media,
                                           const MediaContext& context) const {
  PreparedRequest out;
  out.arrival = Clock::now();
  out.prompt = to_text(spans);
  const std::vector<MediaPlan> plans = plan_all(media, context.options);
  out.token_ids = tokenize(with_video_texts(*model_, spans, plans), plans);
  complete(out, media, plans, context);
  return out;
}

PreparedRequest LoadedModel::prepare_ids(std::vector<std::int32_t> ids, const std::vector<MediaInput>& media,
                                         const MediaOptions& options) const {
  PreparedRequest out;
  out.arrival = Clock::now();
  out.token_ids = std::move(ids);
  complete(out, media, plan_all(media, options), {.options = options, .user_text = {}});
  return out;
}

PreparedRequest LoadedModel::prepare(const ChatRequest& request, const HasRows& has_rows) const {
  const Clock::time_point arrival = Clock::now();
  std::int64_t n_parts = 0;
  std::string user_text;
  for (const ChatMessage& message : request.messages) {
    if (message.role == "system" && !info().supports_system_prompt)
      fail(ErrorCode::kInvalidArgument, "{} has no system prompt", info().architecture);
    for (const ContentPart& part : message.parts) {
      if (part.kind != ContentPart::Kind::kText) ++n_parts;
      if (!utf8::is_valid(part.text))
        fail(ErrorCode::kInvalidArgument, "the {} message is not valid UTF-8", message.role);
      if (part.kind == ContentPart::Kind::kText && message.role == "user") user_text += part.text;
    }
  }
  if (n_parts != static_cast<std::int64_t>(request.media.size()))
    fail(ErrorCode::kInvalidArgument, "the messages hold {} images or videos, but {} were given", n_parts,
         request.media.size());
  ChatInput input;
  input.messages = request.messages;
  input.add_generation_prompt = request.add_generation_prompt && !request.continue_final_message;
  input.continue_final_message = request.continue_final_message;
  input.image_placeholder = info().image_placeholder;
  input.video_placeholder = info().video_placeholder;
  input.tools = request.tools;
  input.variables = request.template_variables;
  const auto special = [&](const char* name, std::optional<std::int32_t> id) {
    if (id) input.special_tokens[name] = tokenizer_->id_to_token(*id);
  };
  special("bos_token", tokenizer_->bos_id());
  special("eos_token", tokenizer_->eos_id());
  special("pad_token", tokenizer_->pad_id());
  special("unk_token", tokenizer_->unk_id());
  const std::vector<RenderedSpan> spans = chat_template().render(input);
  const auto is_video = [](const MediaInput& input_media) { return input_media.is_video; };
  if (std::any_of(request.media.begin(), request.media.end(), is_video)) {
    check_takes_videos(info());
    const auto prints_videos = [&](const RenderedSpan& span) {
      return !span.is_user_text && span.text.find(info().video_placeholder) != std::string::npos;
    };
    if (std::none_of(spans.begin(), spans.end(), prints_videos))
      fail(ErrorCode::kUnsupported, "the chat template of this model prints nothing for a video");
  }
  PreparedRequest out = prepare_spans(spans, request.media,
                                      {.options = request.media_options,
                                       .user_text = user_text,
                                       .cache_salt = request.cache_salt,
                                       .has_rows = &has_rows});
  out.arrival = arrival;
  out.cache_salt = request.cache_salt;
  return out;
}

PreparedRequest LoadedModel::prepare_prompt(std::string_view prompt, const std::vector<MediaInput>& media,
                                            const MediaOptions& options) const {
  return prepare_spans({{.text = std::string(prompt), .is_user_text = false}}, media,
                       {.options = options, .user_text = prompt});
}

}  // namespace triptych
