// LLaVA-1.5: a CLIP (or SigLIP) tower, a two-layer projector, a LLaMA-like decoder.
//   Liu et al., "Improved Baselines with Visual Instruction Tuning" (2023), section 3.
//   Reference: transformers 5.24, models/llava/modeling_llava.py, processing_llava.py; the original
//   repository's layout (LlavaLlamaForCausalLM: flat configuration, mm_projector names) is read too.
// Shapes: P patches, S rows of the tower (P, and the class token), Dv tower width, D language width, T
// tokens, V vocabulary. Deviations: EXIF orientation is applied before the processor and alpha is composited
// over white (the reference does neither).
#include <algorithm>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/activation.h"
#include "nn/clip_vision.h"
#include "nn/llama_decoder.h"
#include "nn/weight_names.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

constexpr std::string_view kVicunaTemplate =
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
  ClipVisionConfig vision;
  std::vector<int> feature_layers;  // hidden states read, as indices >= 0, in the order they are concatenated
  bool drop_first_row = true;       // strategy "default": without the class token
  Activation projector_act = Activation::kGelu;
  Bias projector_bias = Bias::kRequired;
  std::int32_t image_token_id = 32000;
  ClipImageProcessor processor;

  static LlavaConfig parse(const ModelSource& source);
  static LlavaConfig parse_original(const ModelSource& source);
  void add_feature_layer(const JsonView& value);
  std::int64_t tokens_per_image() const { return vision.n_rows() - (drop_first_row ? 1 : 0); }
};

// vision_feature_layer counts hidden states: 0 is the tower's input, -1 its last layer's output.
void LlavaConfig::add_feature_layer(const JsonView& value) {
  const int n_states = vision.n_layers + 1;
  const auto index = static_cast<int>(value.as_int(-n_states, n_states - 1));
  feature_layers.push_back(index < 0 ? n_states + index : index);
}

LlavaConfig LlavaConfig::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  if (!c.has("text_config")) return parse_original(source);
  LlavaConfig out;
  out.text = LlamaConfig::parse(c.at("text_config"), "llama");
  if (!out.text.tie_stated && c.has("tie_word_embeddings")) {
    out.text.tie_stated = true;
    out.text.tie_word_embeddings = c.get_bool("tie_word_embeddings", false);
  }
  // CLIPVisionConfig's own defaults are those of ViT-B/32; LlavaConfig's are ViT-L/14 at 336 when the object
  // is missing.
  if (c.has("vision_config")) {
    out.vision = ClipVisionConfig::parse(c.at("vision_config"));
  } else {
    out.vision = {.hidden_size = 1024,
                  .intermediate_size = 4096,
                  .n_layers = 24,
                  .n_heads = 16,
                  .image_size_px = 336,
                  .patch_size_px = 14};
  }
  const Json minus_two = -2;
  const JsonView layer = c.find("vision_feature_layer").value_or(JsonView(minus_two, c.path()));
  if (layer.is_array()) {
    for (const JsonView& item : layer.items()) out.add_feature_layer(item);
    if (out.feature_layers.empty() || out.feature_layers.size() > 64) layer.fail_expected("1 to 64 layers");
  } else {
    out.add_feature_layer(layer);
  }
  const std::string strategy = c.get_string("vision_feature_select_strategy", "default");
  if (strategy != "default" && strategy != "full")
    fail(ErrorCode::kInvalidFile,
         "{}.vision_feature_select_strategy: expected \"default\" or \"full\", got \"{}\"", c.path(),
         strategy);
  out.drop_first_row = strategy == "default";
  out.projector_act = get_activation(c, "projector_hidden_act", Activation::kGelu);
  out.projector_bias = c.get_bool("multimodal_projector_bias", true) ? Bias::kRequired : Bias::kNone;
  out.image_token_id = static_cast<std::int32_t>(
      c.get_int("image_token_id", c.get_int("image_token_index", 32000, 0, 1 << 30), 0, 1 << 30));
  if (source.preprocessor) {
    out.processor = ClipImageProcessor::parse(*source.preprocessor);
  } else {
    out.processor.shortest_edge_px = out.vision.image_size_px;
    out.processor.crop_size_px = {out.vision.image_size_px, out.vision.image_size_px};
    out.processor.normalize = parse_normalize(c);
  }
  return out;
}

// The original repository: one flat LLaMA configuration, the tower by name, pictures padded to a square.
LlavaConfig LlavaConfig::parse_original(const ModelSource& source) {
  const JsonView& c = source.config;
  LlavaConfig out;
  const std::string type = c.get_string("model_type", "llava");
  out.text = LlamaConfig::parse(c, "llama");
  const std::string tower = c.at("mm_vision_tower").as_string();
  out.vision = {
      .hidden_size = 1024, .intermediate_size = 4096, .n_layers = 24, .n_heads = 16, .patch_size_px = 14};
  if (tower.ends_with("clip-vit-large-patch14-336")) {
    out.vision.image_size_px = 336;
  } else if (tower.ends_with("clip-vit-large-patch14")) {
    out.vision.image_size_px = 224;
  } else {
    fail(ErrorCode::kUnsupported,
         "{}.mm_vision_tower: \"{}\" is not supported; supported: clip-vit-large-patch14-336, "
         "clip-vit-large-patch14",
         c.path(), tower);
  }
  const std::string projector = c.get_string("mm_projector_type", "mlp2x_gelu");
  if (projector != "mlp2x_gelu")
    fail(ErrorCode::kUnsupported, "{}.mm_projector_type: \"{}\" is not supported; supported: mlp2x_gelu",
         c.path(), projector);
  const Json minus_two = -2;
  out.add_feature_layer(c.find("mm_vision_select_layer").value_or(JsonView(minus_two, c.path())));
  out.drop_first_row = c.get_string("mm_vision_select_feature", "patch") == "patch";
  // The vocabulary has no image token: pictures take an id behind it, which never reaches the embedding.
  out.image_token_id = static_cast<std::int32_t>(out.text.vocab_size);
  out.processor.do_pad = c.get_string("image_aspect_ratio", "square") == "pad";
  out.processor.shortest_edge_px = out.vision.image_size_px;
  out.processor.crop_size_px = {out.vision.image_size_px, out.vision.image_size_px};
  out.processor.normalize = parse_normalize(c);
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
  ClipVision vision_tower_;
  std::unique_ptr<LinearWeight> linear_1_;  // [D, Dv * layers read]
  std::unique_ptr<LinearWeight> linear_2_;  // [D, D]
  LlamaDecoder language_model_;
};

Llava::Llava(const ModelSource& source) : config_(LlavaConfig::parse(source)) {
  const LlavaConfig& c = config_;
  const std::int64_t d = c.text.hidden_size;
  const std::int64_t dv = c.vision.hidden_size;
  if (const auto size = c.processor.fixed_size();
      !size || size->width_px != c.vision.image_size_px || size->height_px != size->width_px)
    fail(
        ErrorCode::kInvalidFile,
        "preprocessor_config.json: pictures must come out as {0}x{0} pixels, the tower's image_size; got {1}",
        c.vision.image_size_px,
        size ? fmt::format("{}x{}", size->width_px, size->height_px) : "sizes that depend on the picture");

  WeightProvider& weights = *source.weights;
  weights.rename([](std::string_view name) { return canonical_weight_name(name); });
  Binder vision = Binder(weights, *source.backend, sizes_, "vision").scope("vision_tower");
  if (!vision.has("embeddings.patch_embedding.weight") && !source.config.has("text_config"))
    fail(ErrorCode::kNotFound,
         "the checkpoint holds no vision tower; copy the tensors of {} into it as model.vision_tower.*",
         source.config.get_string("mm_vision_tower", "the tower"));
  vision_tower_ =
      ClipVision::bind(c.vision, vision, *std::max_element(c.feature_layers.begin(), c.feature_layers.end()),
                       "model.vision_tower");
  Binder projector = Binder(weights, *source.backend, sizes_, "projector").scope("multi_modal_projector");
  linear_1_ = projector.linear("linear_1", d, dv * static_cast<std::int64_t>(c.feature_layers.size()),
                               c.projector_bias);
  linear_2_ = projector.linear("linear_2", d, d, c.projector_bias);
  if (source.tie_word_embeddings) config_.text.tie_word_embeddings = true;
  Binder language = Binder(weights, *source.backend, sizes_, "language").scope("lm");
  language_model_ = LlamaDecoder::bind(c.text, language, "lm_head", "model.language_model");

  info_.vocab_size = c.text.vocab_size;
  info_.hidden_size = d;
  info_.n_layers = c.text.n_layers;
  info_.n_heads = c.text.n_heads;
  info_.n_kv_heads = c.text.n_kv_heads;
  info_.head_dim = c.text.head_dim;
  info_.max_context_tokens = c.text.max_position_embeddings;
  info_.image_placeholder = "<image>";
  info_.image_token_id = c.image_token_id;
  info_.never_sample = {c.image_token_id};
  info_.default_chat_template = kVicunaTemplate;
}

MediaPlan Llava::plan_media(const MediaMeta& meta, const MediaOptions&) const {
  const int side = config_.vision.image_size_px;
  const int grid = side / config_.vision.patch_size_px;
  return {.meta = meta,
          .resized_width_px = side,
          .resized_height_px = side,
          .grid_h = grid,
          .grid_w = grid,
          .n_tokens = config_.tokens_per_image(),
          .n_prompt_tokens = config_.tokens_per_image()};
}

Tensor Llava::preprocess(std::span<const Image> frames, const MediaPlan&, ThreadPool* pool) const {
  return config_.processor(frames.front(), pool);  // [3, S, S]
}

PromptLayout Llava::expand_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans) const {
  return expand_in_place(ids, config_.image_token_id, plans);
}

TensorView Llava::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const auto n = static_cast<std::int64_t>(items.size());
  const std::int64_t rows = config_.vision.n_rows();       // S
  const std::int64_t tokens = config_.tokens_per_image();  // S or S - 1
  const std::int64_t dv = config_.vision.hidden_size;
  const std::size_t n_states = config_.feature_layers.size();
  TensorView out = cx.empty({n * tokens, config_.text.hidden_size});
  const ArenaScope scratch(cx.arena());
  const auto pictures = cx.arena().make_span<TensorView>(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) pictures[i] = items[i].pixels.view();
  const auto states = cx.arena().make_span<TensorView>(n_states);
  vision_tower_.forward(cx, pictures, config_.feature_layers, states);  // each [n S, Dv]
  TensorView features = cx.empty({n * tokens, static_cast<std::int64_t>(n_states) * dv});
  for (std::size_t s = 0; s < n_states; ++s)
    for (std::int64_t i = 0; i < n; ++i) {
      TensorView to = features.rows(i * tokens, (i + 1) * tokens)
                          .cols(static_cast<std::int64_t>(s) * dv, static_cast<std::int64_t>(s + 1) * dv);
      cx.copy(states[s].rows((i + 1) * rows - tokens, (i + 1) * rows), to);
    }
  TensorView x = cx.linear(*linear_1_, features,
                           {.activation = config_.projector_act, .residual = {}});  // [n tokens, D]
  cx.linear_into(*linear_2_, x, out);                                               // [n tokens, D]
  cx.tap(out, "model.multi_modal_projector");
  return out;
}

TensorView Llava::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = language_model_.embed(cx, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  return language_model_.forward(
      cx, h, {batch.positions, batch.sequences, batch.kv_slots, batch.kv_cache, batch.logit_rows});
}

}  // namespace

void register_llava(ModelRegistry& registry) {
  registry.add({.name = "llava",
                .architectures = {"LlavaForConditionalGeneration", "LlavaLlamaForCausalLM"},
                .matches =
                    [](const JsonView& c) {
                      // The original repository used one class for 1.5 and 1.6; tiling is what tells them
                      // apart.
                      return c.get_string("image_aspect_ratio", "") != "anyres";
                    },
                .load = [](const ModelSource& source) { return std::make_unique<Llava>(source); }});
}

}  // namespace triptych
