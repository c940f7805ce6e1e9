// LLaVA-NeXT (LLaVA-1.6): LLaVA with pictures in tiles of the tower's size ("any resolution").
//   Liu et al., "LLaVA-NeXT: Improved reasoning, OCR, and world knowledge" (2024).
//   Reference: transformers 5.24, models/llava_next/modeling_llava_next.py,
//   image_processing_pil_llava_next.py, processing_llava_next.py.
// Pictures are seen whole and in tiles, with a newline behind each row of the tiles' map (models/anyres.h).
// The original repository's layout (LlavaLlamaForCausalLM, LlavaMistralForCausalLM with image_aspect_ratio
// "anyres" or "anyres_max_N") is read too (models/llava_original.h). Deviations: EXIF orientation is applied
// and alpha is composited over white first (the reference does neither).
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/anyres.h"
#include "models/llama_text.h"
#include "models/llava_original.h"
#include "models/llava_templates.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/llama_decoder.h"
#include "nn/llava_vision.h"
#include "weights/weight_names.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// Documented prompts of the published models, for directories without a template of their own.
constexpr std::string_view kChatmlTemplate =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nAnswer the questions.<|im_end|>' }}{% "
    "endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct LlavaNextConfig {
  LlamaConfig text;
  std::string text_model_type;
  LlavaVisionConfig vision;
  std::int32_t image_token_id = 32000;
  AnyRes anyres;
  std::optional<ImageBrackets> brackets;  // tokens around a picture, original layout only

  static LlavaNextConfig parse(const ModelSource& source);
  static LlavaNextConfig parse_original(const ModelSource& source);
};

LlavaNextConfig LlavaNextConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  if (is_llava_original(c)) return parse_original(source);
  LlavaNextConfig out;
  out.text = parse_llama_text(c, source.tie_word_embeddings);
  out.text_model_type = c.at("text_config").get_string("model_type", "llama");
  out.vision = LlavaVisionConfig::parse(c);
  out.image_token_id = static_cast<std::int32_t>(
      c.get_int("image_token_id", c.get_int("image_token_index", 32000, 0, 1 << 30), 0, 1 << 30));
  // The processor's list says how pictures are cut; the configuration's must agree with it, so one is enough.
  const auto listed = source.preprocessor ? source.preprocessor->find("image_grid_pinpoints") : std::nullopt;
  const int side = out.vision.tower.image_size_px;
  const Json published = {
      {side, 2 * side}, {2 * side, side}, {2 * side, 2 * side}, {3 * side, side}, {side, 3 * side}};
  const JsonView pinpoints =
      listed ? *listed : c.find("image_grid_pinpoints").value_or(JsonView(published, "image_grid_pinpoints"));
  out.anyres = AnyRes::parse(c, out.vision, pinpoints, AnyRes::PairOrder::kHeightWidth, source.preprocessor);
  return out;
}

LlavaNextConfig LlavaNextConfig::parse_original(const ModelSource& source) {
  LlavaOriginal original = LlavaOriginal::parse(source);
  TRIPTYCH_CHECK(original.anyres.has_value(), "[llava_next] an original configuration without tiles");
  LlavaNextConfig out;
  out.text = original.text;
  out.text_model_type = original.text_model_type;
  out.vision = original.vision;
  out.image_token_id = original.image_token_id;
  out.anyres = std::move(*original.anyres);
  out.brackets = original.brackets;
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class LlavaNext : public Model {
 public:
  explicit LlavaNext(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  LlavaNextConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  LlavaVision vision_;
  Tensor image_newline_;  // [D]
  LlamaDecoder language_model_;
};

LlavaNext::LlavaNext(const ModelSource& source) : config_(LlavaNextConfig::parse(source)) {
  const LlavaNextConfig& c = config_;
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  vision_ = LlavaVision::bind(c.vision, source.binder(sizes_, "vision"), source.binder(sizes_, "projector"),
                              c.text.hidden_size);
  image_newline_ = source.binder(sizes_, "projector").tensor("image_newline", {c.text.hidden_size});
  language_model_ = LlamaDecoder::bind(c.text, source.binder(sizes_, "language").scope("lm"), "lm_head",
                                       "model.language_model");

  info_.family = "llava_next";
  info_.architecture = is_llava_original(source.config) ? llava_original_class(source.config)
                                                        : "LlavaNextForConditionalGeneration";
  info_.vocab_size = c.text.vocab_size;
  info_.hidden_size = c.text.hidden_size;
  info_.n_layers = c.text.n_layers;
  info_.n_heads = c.text.n_heads;
  info_.n_kv_heads = c.text.n_kv_heads;
  info_.head_dim = c.text.head_dim;
  info_.max_context_tokens = c.text.max_position_embeddings;
  info_.max_shareable_tokens = c.text.rope.max_shareable_tokens();
  info_.image_placeholder = "<image>";
  info_.image_token_id = c.image_token_id;
  info_.never_sample = {c.image_token_id};
  const std::string& type = c.text_model_type;
  // Yi calls itself llama; its vocabulary tells.
  const bool chatml = type == "qwen2" || (source.token_id && source.token_id("<|im_start|>"));
  info_.default_chat_template = type == "mistral" ? kMistralTemplate
                                : chatml          ? kChatmlTemplate
                                                  : kVicunaTemplate;
}

MediaPlan LlavaNext::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  MediaPlan plan = config_.anyres.plan(meta);
  if (config_.brackets) plan.n_prompt_tokens += 2;
  return plan;
}

Tensor LlavaNext::preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const {
  return config_.anyres.preprocess(frames.front(), plan, pool);  // [V, 3, S, S]
}

PromptLayout LlavaNext::expand_prompt(std::span<const std::int32_t> ids,
                                      std::span<const MediaPlan> plans) const {
  if (config_.brackets)
    return expand_in_place(config_.brackets->around(ids, config_.image_token_id), config_.image_token_id,
                           plans);
  return expand_in_place(ids, config_.image_token_id, plans);
}

TensorView LlavaNext::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  std::int64_t n_tokens = 0;
  for (const MediaItem& item : items) n_tokens += item.plan.n_tokens;
  TensorView out = cx.empty({n_tokens, config_.text.hidden_size});
  std::int64_t row = 0;
  for (const MediaItem& item : items) {
    const std::int64_t end = row + item.plan.n_tokens;
    config_.anyres.encode(cx, vision_, image_newline_.view(), item, out.rows(row, end));
    row = end;
  }
  return out;  // [n tokens, D]
}

TensorView LlavaNext::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(cx, h,
                                 {.positions = batch.positions,
                                  .lengths = batch.lengths,
                                  .sequences = batch.sequences,
                                  .kv_slots = batch.kv_slots,
                                  .kv_cache = batch.kv_cache,
                                  .logit_rows = batch.logit_rows,
                                  .skipped_layers = batch.skipped_layers});
}

}  // namespace

void register_llava_next(ModelRegistry& registry) {
  registry.add({.name = "llava_next",
                .architectures = {"LlavaNextForConditionalGeneration", "LlavaLlamaForCausalLM",
                                  "LlavaMistralForCausalLM"},
                .matches = [](const JsonView& c) { return !is_llava_original(c) || is_tiled_original(c); },
                .load = [](const ModelSource& source) { return std::make_unique<LlavaNext>(source); },
                .matches_when = "with a text_config, or in the original layout with image_aspect_ratio "
                                "\"anyres\" or \"anyres_max_N\"",
                .model_types = {"llava", "llava_llama", "llava_mistral"},
                .without_preprocessor = [](const JsonView& c) -> std::optional<std::string> {
                  if (!is_llava_original(c)) return std::nullopt;
                  return "size, mean and deviation of CLIP, the tower that mm_vision_tower names";
                }});
}

}  // namespace triptych
