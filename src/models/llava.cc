// LLaVA-1.5: a CLIP (or SigLIP) tower, a two-layer projector, a LLaMA-like decoder.
//   Liu et al., "Improved Baselines with Visual Instruction Tuning" (2023), section 3.
//   Reference: transformers 5.24, models/llava/modeling_llava.py, processing_llava.py; the original
//   repository's layout (LlavaLlamaForCausalLM) is read too (models/llava_original.h).
// Shapes: P patches, S rows of the tower (P, and the class token), Dv tower width, D language width, T
// tokens, V vocabulary. Deviations: EXIF orientation is applied before the processor and alpha is composited
// over white (the reference does neither).
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/clip_image_processor.h"
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

// As llava-hf publishes it: without the system sentence of the original code.
constexpr std::string_view kConvertedTemplate =
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'][0]['text'] + ' ' }}{% else %}"
    "{{ message['role'].upper() + ': ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% "
    "endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] }}{% "
    "endfor %}"
    "{{ '</s>' if message['role'] == 'assistant' else ' ' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

struct LlavaConfig {
  LlamaConfig text;
  LlavaVisionConfig vision;
  std::int32_t image_token_id = 32000;
  ClipImageProcessor processor;
  std::optional<ImageBrackets> brackets;  // tokens around a picture, original layout only

  static LlavaConfig parse(const ModelSource& source);
  static LlavaConfig parse_original(const ModelSource& source);
};

LlavaConfig LlavaConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  if (is_llava_original(c)) return parse_original(source);
  LlavaConfig out;
  out.text = parse_llama_text(c, source.tie_word_embeddings);
  out.vision = LlavaVisionConfig::parse(c);
  out.image_token_id = static_cast<std::int32_t>(
      c.get_int("image_token_id", c.get_int("image_token_index", 32000, 0, 1 << 30), 0, 1 << 30));
  if (source.preprocessor) {
    out.processor = ClipImageProcessor::parse(*source.preprocessor);
  } else {
    out.processor = ClipImageProcessor::clip(out.vision.tower.image_size_px);
  }
  return out;
}

LlavaConfig LlavaConfig::parse_original(const ModelSource& source) {
  const LlavaOriginal original = LlavaOriginal::parse(source);
  LlavaConfig out;
  out.text = original.text;
  out.vision = original.vision;
  out.image_token_id = original.image_token_id;
  out.processor = ClipImageProcessor::clip(out.vision.tower.image_size_px);
  out.processor.do_pad = original.do_pad;
  out.brackets = original.brackets;
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class Llava : public Model {
 public:
  explicit Llava(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  LlavaConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  LlavaVision vision_;
  LlamaDecoder language_model_;
};

Llava::Llava(const ModelSource& source) : config_(LlavaConfig::parse(source)) {
  const LlavaConfig& c = config_;
  const int side = c.vision.tower.image_size_px;
  if (const auto size = c.processor.fixed_size(); size != SizePx{side, side})
    fail(
        ErrorCode::kInvalidFile,
        "preprocessor_config.json: pictures must come out as {0}x{0} pixels, the tower's image_size; got {1}",
        side,
        size ? fmt::format("{}x{}", size->width_px, size->height_px) : "sizes that depend on the picture");
  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  if (!weights.has("vision_tower.embeddings.patch_embedding.weight") && is_llava_original(source.config))
    fail(ErrorCode::kNotFound,
         "the checkpoint holds no vision tower; give the checkpoint of {} as --vision-tower",
         source.config.get_string("mm_vision_tower", "the tower"));
  vision_ = LlavaVision::bind(c.vision, source.binder(sizes_, "vision"), source.binder(sizes_, "projector"),
                              c.text.hidden_size);
  language_model_ = LlamaDecoder::bind(c.text, source.binder(sizes_, "language").scope("lm"), "lm_head",
                                       "model.language_model");

  info_.family = "llava";
  const bool is_original = is_llava_original(source.config);
  info_.architecture = is_original ? llava_original_class(source.config) : "LlavaForConditionalGeneration";
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
  info_.default_chat_template = is_original ? kVicunaTemplate : kConvertedTemplate;
}

MediaPlan Llava::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  const int side = config_.vision.tower.image_size_px;
  const int grid = side / config_.vision.tower.patch_size_px;
  return {.meta = meta,
          .resized_width_px = side,
          .resized_height_px = side,
          .grid_h = grid,
          .grid_w = grid,
          .n_patches = config_.vision.tower.n_rows(),
          .n_tokens = config_.vision.tokens_per_picture(),
          .n_prompt_tokens = config_.vision.tokens_per_picture() + (config_.brackets ? 2 : 0)};
}

Tensor Llava::preprocess(std::span<const Image> frames, const MediaPlan&, ThreadPool* pool) const {
  return config_.processor(frames.front(), pool);  // [3, S, S]
}

PromptLayout Llava::expand_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans) const {
  if (config_.brackets)
    return expand_in_place(config_.brackets->around(ids, config_.image_token_id), config_.image_token_id,
                           plans);
  return expand_in_place(ids, config_.image_token_id, plans);
}

TensorView Llava::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const auto pictures = cx.arena().make_span<TensorView>(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) pictures[i] = items[i].pixels.view();
  return vision_.encode(cx, pictures);  // [n tokens, D]
}

TensorView Llava::forward(ExecContext& cx, const Batch& batch) const {
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

void register_llava(ModelRegistry& registry) {
  registry.add(
      {.name = "llava",
       .architectures = {"LlavaForConditionalGeneration", "LlavaLlamaForCausalLM", "LlavaMistralForCausalLM"},
       // The original repository used one class for 1.5 and 1.6; tiles tell them apart.
       .matches = [](const JsonView& c) { return !is_llava_original(c) || !is_tiled_original(c); },
       .load = [](const ModelSource& source) { return std::make_unique<Llava>(source); },
       .matches_when = "without tiles; with image_aspect_ratio \"anyres\" it is "
                       "LlavaNextForConditionalGeneration",
       .model_types = {"llava_llama", "llava_mistral"},
       .without_preprocessor = [](const JsonView& c) -> std::optional<std::string> {
         if (c.has("text_config")) return std::nullopt;
         return "size, mean and deviation of CLIP, the tower that mm_vision_tower names";
       }});
}

}  // namespace triptych
