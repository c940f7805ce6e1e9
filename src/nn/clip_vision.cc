#include "nn/clip_vision.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"

namespace triptych {

ClipVisionConfig ClipVisionConfig::parse(const JsonView& c) {
  ClipVisionConfig out;
  const std::string type = c.get_string("model_type", "clip_vision_model");
  if (type == "siglip_vision_model") {
    out.siglip = true;
    out.patch_size_px = 16;
    out.layer_norm_eps = 1e-6F;
    out.hidden_act = Activation::kGeluTanh;
  } else if (type != "clip_vision_model") {
    fail(ErrorCode::kUnsupported,
         "{}.model_type: vision tower \"{}\" is not supported; supported: clip_vision_model, "
         "siglip_vision_model",
         c.path(), type);
  }
  out.hidden_size = c.get_int("hidden_size", out.hidden_size, 1, 65536);
  out.intermediate_size = c.get_int("intermediate_size", out.intermediate_size, 1, 1 << 20);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", out.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", out.n_heads, 1, 1024));
  out.n_channels = static_cast<int>(c.get_int("num_channels", 3, 3, 3));
  out.image_size_px = static_cast<int>(c.get_int("image_size", out.image_size_px, 1, 8192));
  out.patch_size_px = static_cast<int>(c.get_int("patch_size", out.patch_size_px, 1, out.image_size_px));
  out.layer_norm_eps = read_norm_eps(c, "layer_norm_eps", static_cast<double>(out.layer_norm_eps));
  out.hidden_act = get_activation(c, "hidden_act", out.hidden_act);
  if (out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  return out;
}

ClipVision ClipVision::bind(const ClipVisionConfig& config, const Binder& binder, int last_layer,
                            std::string taps) {
  const std::int64_t d = config.hidden_size;
  const int p = config.patch_size_px;
  TRIPTYCH_CHECK(last_layer >= 0 && last_layer <= config.n_layers, "[clip_vision] hidden state {} of {}",
                 last_layer, config.n_layers);
  ClipVision out;
  out.config_ = config;
  out.taps_ = std::move(taps);
  out.last_layer_ = last_layer;
  Binder e = binder.scope("embeddings");
  out.patch_embedding_ = e.patch_embedding("patch_embedding.weight", {d, config.n_channels, p, p},
                                           config.siglip ? "patch_embedding.bias" : "");
  if (!config.siglip) out.class_embedding_ = e.tensor("class_embedding", {d});
  out.position_embedding_ = e.tensor("position_embedding.weight", {config.n_rows(), d});
  if (!config.siglip) out.pre_layrnorm_ = LayerNorm::bind(binder, "pre_layrnorm", d, config.layer_norm_eps);
  for (int i = 0; i < config.n_layers; ++i) {
    Binder b = binder.scope(fmt::format("encoder.layers.{}", i));
    // Layers that nobody reads may be missing.
    if (i >= last_layer && !b.has("layer_norm1.weight")) break;
    Layer layer;
    layer.layer_norm1 = LayerNorm::bind(b, "layer_norm1", d, config.layer_norm_eps);
    const Binder::StackPart qkv[] = {{"self_attn.q_proj", d, Bias::kRequired},
                                     {"self_attn.k_proj", d, Bias::kRequired},
                                     {"self_attn.v_proj", d, Bias::kRequired}};
    layer.qkv_proj = b.linear_stack(qkv, d);
    layer.out_proj = b.linear("self_attn.out_proj", d, d, Bias::kRequired);
    layer.layer_norm2 = LayerNorm::bind(b, "layer_norm2", d, config.layer_norm_eps);
    layer.fc1 = b.linear("mlp.fc1", config.intermediate_size, d, Bias::kRequired);
    layer.fc2 = b.linear("mlp.fc2", d, config.intermediate_size, Bias::kRequired);
    layer.fc1->set_reader(*layer.fc2);
    b.equalizable(
        {.writers = {{"layer_norm1.weight"}, {"layer_norm1.bias"}},
         .readers = {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
         .n_channels = d});
    b.equalizable({.writers = {{"self_attn.v_proj.weight"}, {"self_attn.v_proj.bias"}},
                   .readers = {"self_attn.out_proj.weight"},
                   .n_channels = d});
    b.equalizable({.writers = {{"layer_norm2.weight"}, {"layer_norm2.bias"}},
                   .readers = {"mlp.fc1.weight"},
                   .n_channels = d});
    out.layers_.push_back(std::move(layer));
  }
  if (binder.has("post_layernorm.weight"))
    out.post_layernorm_ = LayerNorm::bind(binder, "post_layernorm", d, config.layer_norm_eps);
  return out;
}

TensorView ClipVision::embed(ExecContext& cx, std::span<const TensorView> pictures) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t n_rows = config_.n_rows();
  const std::int64_t n_class = config_.siglip ? 0 : 1;
  const auto n = static_cast<std::int64_t>(pictures.size());
  TensorView h = cx.empty({n * n_rows, d});
  TensorView shown = cx.tapping() ? cx.empty({n * config_.n_patches(), d}) : TensorView();
  for (std::int64_t i = 0; i < n; ++i) {
    const ArenaScope scratch(cx.arena());
    TensorView patches =
        cx.patchify(cx.upload(pictures[static_cast<std::size_t>(i)]), config_.patch_size_px);  // [P, C p p]
    TensorView rows = h.rows(i * n_rows, (i + 1) * n_rows);
    if (n_class == 1) cx.copy(class_embedding_.view(), rows.row(0));
    cx.linear_into(*patch_embedding_, patches, rows.rows(n_class, n_rows));  // [P, D]
    if (cx.tapping())
      cx.copy(rows.rows(n_class, n_rows), shown.rows(i * config_.n_patches(), (i + 1) * config_.n_patches()));
    cx.add_inplace(rows, position_embedding_.view());
  }
  cx.tap(shown, "{}.embeddings.patch_embedding", taps_);
  return h;
}

void ClipVision::run_layer(ExecContext& cx, const Layer& layer, TensorView h,
                           std::span<const std::int32_t> cu) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t heads = config_.n_heads;
  const std::int64_t dh = d / heads;
  TensorView qkv = cx.linear(*layer.qkv_proj, layer.layer_norm1.of(h));  // [T, 3D]
  const AttentionArgs args{.q = qkv.cols(0, d).split_last(heads, dh),    // [T, H, Dh]
                           .k = qkv.cols(d, 2 * d).split_last(heads, dh),
                           .v = qkv.cols(2 * d, 3 * d).split_last(heads, dh),
                           .cu_q = cu,
                           .cu_k = cu,
                           .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                           .causal = false};
  TensorView a = cx.attention(args);                                                         // [T, D]
  cx.linear_add(*layer.out_proj, a, h, "self_attn");                                         // [T, D]
  const Activations f = cx.linear(*layer.fc1, layer.layer_norm2.of(h), config_.hidden_act);  // [T, F]
  cx.linear_add(*layer.fc2, f, h, "mlp");                                                    // [T, D]
}

void ClipVision::forward(ExecContext& cx, std::span<const TensorView> pictures, std::span<const int> layers,
                         std::span<TensorView> hidden_states) const {
  const std::int64_t n_rows = config_.n_rows();
  const auto n = static_cast<std::int64_t>(pictures.size());
  for (TensorView& out : hidden_states) out = cx.empty({n * n_rows, config_.hidden_size});
  const ArenaScope scratch(cx.arena());
  TensorView h = embed(cx, pictures);  // [n rows, D]
  cx.tap(h, "{}.embeddings", taps_);
  if (pre_layrnorm_) {
    cx.layer_norm_inplace(h, pre_layrnorm_->weight, pre_layrnorm_->bias, pre_layrnorm_->eps);
    cx.tap(h, "{}.pre_layrnorm", taps_);
  }
  const auto cu = cx.arena().make_span<std::int32_t>(static_cast<std::size_t>(n) + 1);
  for (std::int64_t i = 0; i <= n; ++i)
    cu[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * n_rows);
  const auto keep = [&](int state) {
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (layers[i] == state) cx.copy(h, hidden_states[i]);
  };
  keep(0);
  // Layers nobody reads run only for an observer.
  const int n_layers = cx.tapping() ? static_cast<int>(layers_.size()) : last_layer_;
  for (int i = 0; i < n_layers; ++i) {
    cx.block({taps_, "encoder.layers", i}, h,
             [&] { run_layer(cx, layers_[static_cast<std::size_t>(i)], h, cu); });
    keep(i + 1);
  }
  if (cx.tapping() && post_layernorm_ && n_layers == config_.n_layers) {
    if (config_.siglip) {  // every row is normed, and pooled by a head that no model reads
      cx.tap((*post_layernorm_)(cx, h), "{}.post_layernorm", taps_);
      return;
    }
    // The pooled output is the norm of the class row of every picture.
    const auto rows = cx.arena().make_span<std::int32_t>(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      rows[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * n_rows);
    cx.tap((*post_layernorm_)(cx, cx.gather_rows(h, rows)), "{}.post_layernorm", taps_);
  }
}

}  // namespace triptych
