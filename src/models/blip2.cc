// BLIP-2 with an OPT language model.
//   Li et al., "BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders and Large
//   Language Models" (2023); Zhang et al., "OPT: Open Pre-trained Transformer Language Models" (2022).
//   Reference: transformers 5.24, models/blip_2/{modeling,processing}_blip_2.py, models/opt/modeling_opt.py.
// Tower -> Q-Former with n learned queries -> linear projection; the n rows stand before everything else:
//   [ image x n, </s>, text ... ]
// Shapes: R rows of the tower, Dq Q-Former width, D language width, F feed-forward width, H heads, Dh head
// width, T tokens. Flan-T5 variants (encoder-decoder) are refused by name.
#include <cmath>

#include "base/error.h"
#include "models/clip_image_processor.h"
#include "models/model.h"
#include "models/prompt_layout.h"
#include "nn/activation.h"
#include "nn/blip_vision.h"
#include "nn/logit_rows.h"
#include "nn/q_former.h"

namespace triptych {
namespace {

// ---- configuration
// ------------------------------------------------------------------------------------------------

// A caption has no text; a question is asked as "Question: ... Answer:" by the user.
constexpr std::string_view kDefaultTemplate =
    "{% for message in messages %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}{{ '<image>' }}{% else %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}";

// Defaults are OPTConfig's.
struct OptConfig {
  std::int64_t vocab_size = 50272;
  std::int64_t hidden_size = 768;
  std::int64_t ffn_dim = 3072;
  int n_layers = 12;
  int n_heads = 12;
  std::int64_t max_position_embeddings = 2048;
  Activation activation = Activation::kRelu;
  bool tie_word_embeddings = true;

  static OptConfig parse(const JsonView& c);
};

OptConfig OptConfig::parse(const JsonView& c) {
  OptConfig out;
  out.vocab_size = c.get_int("vocab_size", out.vocab_size, 1, 1 << 24);
  out.hidden_size = c.get_int("hidden_size", out.hidden_size, 1, 65536);
  out.ffn_dim = c.get_int("ffn_dim", out.ffn_dim, 1, 1 << 20);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", out.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", out.n_heads, 1, 1024));
  out.max_position_embeddings = c.get_int("max_position_embeddings", out.max_position_embeddings, 1, 1 << 24);
  out.activation = get_activation(c, "activation_function", Activation::kRelu);
  out.tie_word_embeddings = c.get_bool("tie_word_embeddings", true);
  if (out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  // The 350M OPT norms after its blocks and projects its embeddings; no BLIP-2 uses it.
  if (!c.get_bool("do_layer_norm_before", true) ||
      c.get_int("word_embed_proj_dim", out.hidden_size, 1, 65536) != out.hidden_size ||
      c.get_bool("_remove_final_layer_norm", false) || !c.get_bool("enable_bias", true))
    fail(ErrorCode::kUnsupported,
         "{}: this OPT variant (norm after the blocks, projected embeddings or no biases) is not supported",
         c.path());
  return out;
}

struct Blip2Config {
  OptConfig text;
  BlipVisionConfig vision;
  QFormerConfig qformer;
  std::int32_t image_token_id = -1;
  ClipImageProcessor processor;

  static Blip2Config parse(const ModelSource& source);
};

Blip2Config Blip2Config::parse(const ModelSource& source) {
  const JsonView& c = source.config;
  Blip2Config out;
  const JsonView text = c.at("text_config");
  const std::string type = text.get_string("model_type", "opt");
  if (type != "opt")
    fail(ErrorCode::kUnsupported,
         "{}.text_config.model_type: \"{}\" is not supported; BLIP-2 is supported with opt (Flan-T5 is an "
         "encoder-decoder)",
         c.path(), type);
  out.text = OptConfig::parse(text);
  const auto part = [&](const char* key) {
    return c.find(key).value_or(JsonView(empty_json_object(), fmt::format("{}.{}", c.path(), key)));
  };
  out.vision = BlipVisionConfig::parse(part("vision_config"));
  out.qformer = QFormerConfig::parse(part("qformer_config"), false,
                                     static_cast<int>(c.get_int("num_query_tokens", 32, 1, 4096)));
  // Older files have no image token: the vocabulary's next id stands for it and never reaches the embedding.
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

class Blip2 : public Model {
 public:
  explicit Blip2(const ModelSource& source);
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 private:
  struct Layer {  // of OPT
    LayerNorm self_attn_layer_norm;
    std::unique_ptr<LinearWeight> qkv_proj;  // [3D, D]
    std::unique_ptr<LinearWeight> out_proj;  // [D, D]
    LayerNorm final_layer_norm;
    std::unique_ptr<LinearWeight> fc1;  // [F, D]
    std::unique_ptr<LinearWeight> fc2;  // [D, F]
  };
  void bind_language(const ModelSource& source);
  TensorView self_attention(ExecContext& cx, const Layer& layer, int index, const LinearInput& x,
                            const Batch& batch) const;

  Blip2Config config_;
  ModelInfo info_;
  PartSizes sizes_;
  BlipVision vision_model_;
  QFormer qformer_;
  std::unique_ptr<LinearWeight> language_projection_;  // [D, Dq]
  std::unique_ptr<EmbeddingWeight> embed_tokens_;      // [V, D]
  std::unique_ptr<EmbeddingWeight> embed_positions_;   // [positions + 2, D]
  std::vector<Layer> layers_;
  LayerNorm final_layer_norm_;
  std::unique_ptr<LinearWeight> lm_head_;  // [V, D]
};

constexpr int kPositionOffset = 2;  // OPT's table begins with two rows for padding

Blip2::Blip2(const ModelSource& source) : config_(Blip2Config::parse(source)) {
  const Blip2Config& c = config_;
  const int side = c.vision.image_size_px;
  if (const auto size = c.processor.fixed_size(); size != SizePx{side, side})
    fail(ErrorCode::kInvalidFile,
         "preprocessor_config.json: pictures must come out as {0}x{0} pixels, the tower's image_size", side);
  vision_model_ = BlipVision::bind(c.vision, source.binder(sizes_, "vision").scope("vision_model"));
  Binder projector = source.binder(sizes_, "projector");
  qformer_ = QFormer::bind(c.qformer, projector);
  language_projection_ =
      projector.linear("language_projection", c.text.hidden_size, c.qformer.hidden_size, Bias::kRequired);
  bind_language(source);

  info_.family = "blip2";
  info_.architecture = "Blip2ForConditionalGeneration";
  info_.vocab_size = c.text.vocab_size;
  info_.hidden_size = c.text.hidden_size;
  info_.n_layers = c.text.n_layers;
  info_.n_heads = c.text.n_heads;
  info_.n_kv_heads = c.text.n_heads;
  info_.head_dim = static_cast<int>(c.text.hidden_size / c.text.n_heads);
  info_.max_context_tokens = c.text.max_position_embeddings;
  info_.image_placeholder = "<image>";
  info_.image_token_id = c.image_token_id;
  info_.never_sample = {c.image_token_id};
  info_.default_chat_template = kDefaultTemplate;
  info_.max_images = 1;
  info_.supports_system_prompt = false;
}

void Blip2::bind_language(const ModelSource& source) {
  const OptConfig& c = config_.text;
  const std::int64_t d = c.hidden_size;
  constexpr float kEps = 1e-5F;
  Binder root = source.binder(sizes_, "language");
  Binder b = root.scope("language_model.model.decoder");
  embed_tokens_ = b.embedding("embed_tokens.weight", c.vocab_size, d);
  embed_positions_ = b.embedding("embed_positions.weight", c.max_position_embeddings + kPositionOffset, d);
  for (int i = 0; i < c.n_layers; ++i) {
    Binder l = b.scope(fmt::format("layers.{}", i));
    Layer layer;
    layer.self_attn_layer_norm = LayerNorm::bind(l, "self_attn_layer_norm", d, kEps);
    const Binder::StackPart qkv[] = {{"self_attn.q_proj", d, Bias::kRequired},
                                     {"self_attn.k_proj", d, Bias::kRequired},
                                     {"self_attn.v_proj", d, Bias::kRequired}};
    layer.qkv_proj = l.linear_stack(qkv, d);
    layer.out_proj = l.linear("self_attn.out_proj", d, d, Bias::kRequired);
    layer.final_layer_norm = LayerNorm::bind(l, "final_layer_norm", d, kEps);
    layer.fc1 = l.linear("fc1", c.ffn_dim, d, Bias::kRequired);
    layer.fc2 = l.linear("fc2", d, c.ffn_dim, Bias::kRequired);
    layers_.push_back(std::move(layer));
  }
  final_layer_norm_ = LayerNorm::bind(b, "final_layer_norm", d, kEps);
  // The head is the embedding; a copy of it may be stored.
  const bool own_head = root.has("language_model.lm_head.weight");
  if (!own_head && !c.tie_word_embeddings)
    fail(ErrorCode::kNotFound,
         "tensor language_model.lm_head.weight is missing and tie_word_embeddings is false");
  lm_head_ = root.linear(own_head ? "language_model.lm_head" : "language_model.model.decoder.embed_tokens",
                         c.vocab_size, d, Bias::kNone, {.role = LinearRole::kHead});
}

MediaPlan Blip2::plan_media(const MediaMeta& meta, const MediaOptions&) const {
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

Tensor Blip2::preprocess(std::span<const Image> frames, const MediaPlan&, ThreadPool* pool) const {
  return config_.processor(frames.front(), pool);  // [3, S, S]
}

PromptLayout Blip2::expand_prompt(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans) const {
  return expand_image_first(ids, config_.image_token_id, plans);
}

TensorView Blip2::encode_media(ExecContext& cx, std::span<const MediaItem> items) const {
  const std::int64_t nq = config_.qformer.n_queries;
  const std::int64_t rows = config_.vision.n_rows();
  TensorView out = cx.empty({static_cast<std::int64_t>(items.size()) * nq, config_.text.hidden_size});
  const auto pictures = cx.arena().make_span<TensorView>(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) pictures[i] = items[i].pixels.view();
  TensorView image = vision_model_.forward(cx, pictures);  // [n R, Dv]
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    TensorView queries = qformer_.forward(cx, image.rows(k * rows, (k + 1) * rows), {});  // [nq, Dq]
    cx.linear_into(*language_projection_, queries, out.rows(k * nq, (k + 1) * nq));       // [nq, D]
  }
  cx.tap(out, "language_projection");
  return out;
}

TensorView Blip2::self_attention(ExecContext& cx, const Layer& layer, int index, const LinearInput& x,
                                 const Batch& batch) const {
  const std::int64_t d = config_.text.hidden_size;
  const std::int64_t h = config_.text.n_heads;
  const std::int64_t dh = d / h;
  TensorView qkv = cx.linear(*layer.qkv_proj, x);   // [T, 3D]
  TensorView q = qkv.cols(0, d).split_last(h, dh);  // [T, H, Dh]
  TensorView k = qkv.cols(d, 2 * d).split_last(h, dh);
  TensorView v = qkv.cols(2 * d, 3 * d).split_last(h, dh);
  cx.kv_append(*batch.kv_cache, index, k, v, batch.kv_slots);
  return cx.paged_attention(*batch.kv_cache, index, batch.sequences, 1.0F / std::sqrt(static_cast<float>(dh)),
                            q);  // [T, D]
}

TensorView Blip2::forward(ExecContext& cx, const Batch& batch) const {
  TensorView h = cx.embedding(*embed_tokens_, ids_for_embedding(cx, batch));  // [T, D]
  apply_media(cx, batch, h);
  const auto places = cx.arena().make_span<std::int32_t>(batch.positions.size());
  cx.host([places, positions = batch.positions] {
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = positions[i] + kPositionOffset;
  });
  cx.add_inplace(h, cx.embedding(*embed_positions_, places));
  const LogitRows logit_rows(cx, batch.logit_rows, h);
  for (int i = 0; i < config_.text.n_layers; ++i) {
    if (batch.skips(i)) continue;
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    cx.block({"language_model.model.decoder", "layers", i}, h, [&] {
      TensorView a = self_attention(cx, layer, i, layer.self_attn_layer_norm.of(h), batch);  // [T, D]
      if (i + 1 == config_.text.n_layers) logit_rows.keep(cx, a, h);
      cx.linear_add(*layer.out_proj, a, h, "self_attn");  // [T, D]
      const Activations f =
          cx.linear(*layer.fc1, layer.final_layer_norm.of(h), config_.text.activation);  // [T, F]
      cx.linear_add(*layer.fc2, f, h);                                                   // [T, D]
    });
  }
  TensorView last = logit_rows.of(cx, h);                   // [n, D]
  return cx.linear(*lm_head_, final_layer_norm_.of(last));  // [n, V]
}

}  // namespace

void register_blip2(ModelRegistry& registry) {
  registry.add({.name = "blip2",
                .architectures = {"Blip2ForConditionalGeneration"},
                .matches = nullptr,
                .load = [](const ModelSource& source) { return std::make_unique<Blip2>(source); },
                .model_types = {"blip-2"},
                .without_preprocessor = ModelRegistry::needs_preprocessor});
}

}  // namespace triptych
