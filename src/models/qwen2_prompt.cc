#include "models/qwen2_prompt.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/llama_text.h"
#include "nn/mrope.h"

namespace triptych {

std::string qwen2_vl_template(std::string_view default_system) {
  std::string out =
      "{%- set seen = namespace(images=0, videos=0) -%}"
      "{%- for message in messages -%}";
  if (!default_system.empty())
    out +=
        "{%- if loop.first and message['role'] != 'system' -%}"
        "{{ '<|im_start|>system\\n" +
        std::string(default_system) +
        "<|im_end|>\\n' }}"
        "{%- endif -%}";
  out +=
      "{{ '<|im_start|>' + message['role'] + '\\n' }}"
      "{%- if message['content'] is string -%}{{ message['content'] }}{%- else -%}"
      "{%- for part in message['content'] -%}"
      "{%- if part['type'] == 'image' or part['type'] == 'image_url' -%}"
      "{%- set seen.images = seen.images + 1 -%}"
      "{%- if add_vision_id -%}{{ 'Picture ' ~ seen.images ~ ': ' }}{%- endif -%}"
      "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
      "{%- elif part['type'] == 'video' -%}"
      "{%- set seen.videos = seen.videos + 1 -%}"
      "{%- if add_vision_id -%}{{ 'Video ' ~ seen.videos ~ ': ' }}{%- endif -%}"
      "{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
      "{%- elif 'text' in part -%}{{ part['text'] }}{%- endif -%}"
      "{%- endfor -%}"
      "{%- endif -%}"
      "{{ '<|im_end|>\\n' }}"
      "{%- endfor -%}"
      "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";
  return out;
}

namespace {

bool states_rope_theta(const JsonView& text) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const auto inner = text.find(key); inner && inner->has("rope_theta")) return true;
  return text.has("rope_theta");
}

void check_count(std::string_view what, std::string_view placeholder, std::int64_t n_placeholders,
                 std::int64_t n_items) {
  if (n_placeholders == n_items) return;
  fail(ErrorCode::kInvalidArgument, "the prompt has {} {} placeholder{} ({}) but {} {}{} given",
       n_placeholders, what, n_placeholders == 1 ? "" : "s", placeholder, n_items, what,
       n_items == 1 ? " was" : "s were");
}

// Positions between two grid steps of a video, in float32 as the reference multiplies them.
float temporal_step(const MediaPlan& plan, const Qwen2PromptRules& rules) {
  if (!plan.meta.is_video || rules.tokens_per_second == 0) return 1.0F;
  return static_cast<float>(rules.tokens_per_second) *
         static_cast<float>(rules.tower.temporal_patch_size / frames_per_second(plan.meta));
}

}  // namespace

double frames_per_second(const MediaMeta& meta) {
  const double rate = meta.frames_per_s != 0 ? meta.frames_per_s : 2.0;
  if (!(std::isfinite(rate) && rate > 0))
    fail(ErrorCode::kInvalidArgument, "a video needs more than 0 frames a second, got {}", rate);
  return rate;
}

LlamaConfig parse_qwen2_vl_text(const JsonView& config, bool force_tie) {
  const JsonView text = config.find("text_config").value_or(config);
  LlamaConfig out =
      LlamaConfig::parse(text, llama_defaults(text.get_string("model_type", "qwen2_vl_text"), text));
  if (!text.has("rms_norm_eps")) out.rms_norm_eps = 1e-5F;
  if (!states_rope_theta(text)) out.rope.theta = 1e6;
  if (out.rope.mrope_section.empty()) {
    if (out.rope.rotary_dim != 128)
      fail(ErrorCode::kInvalidFile,
           "{}: mrope_section is missing, and its default [16, 24, 24] is for heads of 128, not {}",
           text.path(), out.rope.rotary_dim);
    out.rope.mrope_section = {16, 24, 24};
  }
  // Files have it at the top, in text_config, or in both; either may be the one that says true.
  out.tie_stated = out.tie_stated || config.has("tie_word_embeddings");
  out.tie_word_embeddings =
      out.tie_word_embeddings || config.get_bool("tie_word_embeddings", false) || force_tie;
  return out;
}

Qwen2VisionTokens Qwen2VisionTokens::parse(const ModelSource& source) {
  constexpr std::int64_t kMaxId = 1 << 30;
  const JsonView& c = source.config;
  Qwen2VisionTokens out;
  out.image = static_cast<std::int32_t>(c.get_int("image_token_id", out.image, 0, kMaxId));
  out.video = static_cast<std::int32_t>(c.get_int("video_token_id", out.video, 0, kMaxId));
  if (out.image == out.video)
    fail(ErrorCode::kInvalidFile, "{}: image_token_id and video_token_id are both {}", c.path(), out.image);
  if (c.has("vision_token_id")) {
    out.pad = static_cast<std::int32_t>(c.at("vision_token_id").as_int(0, kMaxId));
  } else if (source.token_id) {
    out.pad = source.token_id("<|vision_pad|>").value_or(-1);
  }
  return out;
}

void describe_qwen2_vl(const LlamaConfig& text, const Qwen2VisionTokens& tokens, ModelInfo& info) {
  info.vocab_size = text.vocab_size;
  info.hidden_size = text.hidden_size;
  info.n_layers = text.n_layers;
  info.n_heads = text.n_heads;
  info.n_kv_heads = text.n_kv_heads;
  info.head_dim = text.head_dim;
  info.max_context_tokens = text.max_position_embeddings;
  info.max_shareable_tokens = text.rope.max_shareable_tokens();
  info.n_position_axes = 3;
  info.image_placeholder = "<|image_pad|>";
  info.image_token_id = tokens.image;
  info.video_placeholder = "<|video_pad|>";
  info.video_token_id = tokens.video;
  info.never_sample = {tokens.image, tokens.video};
  if (tokens.pad >= 0) info.never_sample.push_back(tokens.pad);
  info.default_chat_template = qwen2_vl_template("You are a helpful assistant.");
}

PromptLayout expand_qwen2_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans,
                                 const Qwen2PromptRules& rules) {
  const auto parts_of = [&](const MediaPlan& plan) {  // placeholders
    return plan.meta.is_video && rules.splits_videos ? plan.grid_t : 1;
  };
  std::int64_t n_pictures = 0;
  std::int64_t n_video_parts = 0;
  std::int64_t n_tokens = static_cast<std::int64_t>(ids.size());
  for (const MediaPlan& plan : plans) {
    (plan.meta.is_video ? n_video_parts : n_pictures) += parts_of(plan);
    n_tokens += plan.n_tokens - parts_of(plan);
  }
  check_count("image", "<|image_pad|>", std::count(ids.begin(), ids.end(), rules.tokens.image), n_pictures);
  check_count(rules.splits_videos ? "video frame pair" : "video", "<|video_pad|>",
              std::count(ids.begin(), ids.end(), rules.tokens.video), n_video_parts);
  if (n_tokens > rules.max_context_tokens)
    fail(ErrorCode::kContextLength, "the prompt has {} tokens and the context holds {}", n_tokens,
         rules.max_context_tokens);

  PromptLayout out;
  out.input_ids.reserve(static_cast<std::size_t>(n_tokens));
  std::vector<MropeMedia> media;
  std::size_t next_of[] = {0, 0};  // the next picture's and the next video's place among the plans
  int next_part = 0;               // of that video
  for (const std::int32_t id : ids) {
    if (id != rules.tokens.image && id != rules.tokens.video) {
      out.input_ids.push_back(id);
      continue;
    }
    const bool is_video = id == rules.tokens.video;
    std::size_t& next = next_of[is_video ? 1 : 0];
    while (plans[next].meta.is_video != is_video) ++next;
    const MediaPlan& plan = plans[next];
    const auto first_row = static_cast<std::int64_t>(out.input_ids.size());
    const int n_parts = parts_of(plan);
    const int part = is_video ? next_part : 0;
    const std::int64_t n_rows = plan.n_tokens / n_parts;
    out.runs.push_back({.media_index = static_cast<int>(next),
                        .first_media_row = part * n_rows,
                        .first_prompt_row = first_row,
                        .n_rows = n_rows});
    media.push_back({.first_row = first_row,
                     .grid_t = plan.grid_t / n_parts,
                     .grid_h = plan.grid_h / rules.tower.merge_size,
                     .grid_w = plan.grid_w / rules.tower.merge_size,
                     .temporal_step = temporal_step(plan, rules)});
    out.input_ids.insert(out.input_ids.end(), static_cast<std::size_t>(n_rows), id);
    if (is_video) next_part = (part + 1) % n_parts;
    if (part + 1 == n_parts) ++next;
  }
  MropePositions positions = mrope_positions(n_tokens, media);
  out.positions = std::move(positions.positions);
  out.next_position = positions.next_position;
  return out;
}

}  // namespace triptych
