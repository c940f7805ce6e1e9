// InstructBLIP with a Vicuna (LLaMA) language model: BLIP-2 whose Q-Former also reads the instruction.
//   Dai et al., "InstructBLIP: Towards General-purpose Vision-Language Models with Instruction Tuning"
//   (2023), section 2. Reference: transformers 5.24,
//   models/instructblip/{modeling,processing}_instructblip.py. [ image x n, <s>, instruction ... ]; the same
//   instruction, in the Q-Former's own WordPiece ids, goes to encode_media.
// Shapes: R rows of the tower, Dq Q-Former width, D language width, T tokens, V vocabulary. Flan-T5 variants
// are refused by name.
#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/llama_text.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/blip_vision.h"
#include "nn/llama_decoder.h"
#include "nn/q_former.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

constexpr std::string_view kDefaultTemplate =
    "{% for message in messages %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}{{ '<image>' }}{% else %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}";

struct InstructBlipConfig {
  LlamaConfig text;
  BlipVisionConfig vision;
  QFormerConfig qformer;
  std::int32_t image_token_id = -1;
  ClipImageProcessor processor;

  static InstructBlipConfig parse(const ModelSource& source);
};

InstructBlipConfig InstructBlipConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  InstructBlipConfig out;
  const std::string type = c.at("text_config").get_string("model_type", "llama");
  if (type != "llama")
    fail(ErrorCode::kUnsupported,
         "{}.text_config.model_type: \"{}\" is not supported; InstructBLIP is supported with llama (Flan-T5 "
         "is an encoder-decoder)",
         c.path(), type);
  out.text = parse_llama_text(c, source.tie_word_embeddings);
  const auto part = [&](const char* key) {
    return c.find(key).value_or(JsonView(empty_json_object(), fmt::format("{}.{}", c.path(), key)));
  };
  out.vision = BlipVisionConfig::parse(part("vision_config"));
  out.qformer = QFormerConfig::parse(part("qformer_config"), true,
                                     static_cast<int>(c.get_int("num_query_tokens", 32, 1, 4096)));
  out.image_token_id = static_cast<std::int32_t>(c.get_int(
      "image_token_id", c.get_int("image_token_index", out.text.vocab_size, 0, 1 << 30), 0, 1 << 30));
  if (source.preprocessor) {
    out.processor = ClipImageProcessor::parse(*source.preprocessor);
  } else {
    out.processor = ClipImageProcessor::clip(out.vision.image_size_px);
  }
  return out;
}

// ---- the model
// ----------------------------------------------------------------------------------------------------

class InstructBlip : public Model {
 public:
  explicit InstructBlip(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  InstructBlipConfig config_;
  ModelInfo info_;
  PartSizes sizes_;
  BlipVision vision_model_;
  QFormer qformer_;
  std::unique_ptr<LinearWeight> language_projection_;  // [D, Dq]
  LlamaDecoder language_model_;
};

InstructBlip::InstructBlip(const ModelSource& source) : config_(InstructBlipConfig::parse(source)) {
  const InstructBlipConfig& c = config_;
  const int side = c.vision.image_size_px;
  if (const auto size = c.processor.fixed_size(); size != SizePx{side, side})
    fail(ErrorCode::kInvalidFile,
         "preprocessor_config.json: pictures must come out as {0}x{0} pixels, the tower's image_size", side);
  vision_model_ = BlipVision::bind(c.vision, source.binder(sizes_, "vision").scope("vision_model"));
  Binder projector = source.binder(sizes_, "projector");
  qformer_ = QFormer::bind(c.qformer, projector);
  language_projection_ =
      projector.linear("language_projection", c.text.hidden_size, c.qformer.hidden_size, Bias::kRequired);
  language_model_ =
      LlamaDecoder::bind(c.text, source.binder(sizes_, "language").scope("language_model.model"),
                         "language_model.lm_head", "language_model.model");

  info_.family = "instructblip";
  info_.architecture = "InstructBlipForConditionalGeneration";
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
  info_.default_chat_template = kDefaultTemplate;
  info_.max_images = 1;
  info_.supports_system_prompt = false;
  info_.media_text_tokenizer = "qformer_tokenizer";
}

MediaPlan InstructBlip::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  const int side = config_.vision.image_size_px;
  MediaPlan plan;
  plan.meta = meta;
  plan.resized_width_px = side;
  plan.resized_height_px = side;
  plan.grid_h = side / config_.vision.patch_size_px;
  plan.grid_w = plan.grid_h;
  plan.n_patches = config_.vision.n_rows();
  plan.n_tokens = config_.qformer.n_queries;
  plan.n_prompt_tokens = plan.n_tokens;
  return plan;
}

Tensor InstructBlip::preprocess(std::span<const Image> frames, const MediaPlan&, ThreadPool* pool) const {
  return config_.processor(frames.front(), pool);  // [3, S, S]
}

PromptLayout InstructBlip::expand_prompt(std::span<const std::int32_t> ids,
                                         std::span<const MediaPlan> plans) const {
  return expand_image_first(ids, config_.image_token_id, plans);
}

TensorView InstructBlip::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const std::int64_t nq = config_.qformer.n_queries;
  const std::int64_t rows = config_.vision.n_rows();
  TensorView out = cx.empty({static_cast<std::int64_t>(items.size()) * nq, config_.text.hidden_size});
  const auto pictures = cx.arena().make_span<TensorView>(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) pictures[i] = items[i].pixels.view();
  TensorView image = vision_model_.forward(cx, pictures);  // [n R, Dv]
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    TensorView queries =
        qformer_.forward(cx, image.rows(k * rows, (k + 1) * rows), items[i].text_ids);  // [nq, Dq]
    cx.linear_into(*language_projection_, queries, out.rows(k * nq, (k + 1) * nq));     // [nq, D]
  }
  cx.tap(out, "language_projection");
  return out;
}

TensorView InstructBlip::forward(ExecContext& cx, const Batch& batch) const {
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

void register_instructblip(ModelRegistry& registry) {
  registry.add({.name = "instructblip",
                .architectures = {"InstructBlipForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<InstructBlip>(source); },
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych
