#include "nn/blip_vision.h"

#include <cmath>

#include "base/error.h"
#include "nn/activation.h"
#include "nn/config_numbers.h"

namespace triptych {

BlipVisionConfig BlipVisionConfig::parse(const JsonView& c) {
  BlipVisionConfig out;
  out.hidden_size = c.get_int("hidden_size", out.hidden_size, 1, 65536);
  out.intermediate_size = c.get_int("intermediate_size", out.intermediate_size, 1, 1 << 20);
  out.n_layers = static_cast<int>(c.get_int("num_hidden_layers", out.n_layers, 1, 1024));
  out.n_heads = static_cast<int>(c.get_int("num_attention_heads", out.n_heads, 1, 1024));
  out.image_size_px = static_cast<int>(c.get_int("image_size", out.image_size_px, 1, 8192));
  out.patch_size_px = static_cast<int>(c.get_int("patch_size", out.patch_size_px, 1, out.image_size_px));
  out.layer_norm_eps = read_norm_eps(c, "layer_norm_eps", 1e-6);
  out.hidden_act = get_activation(c, "hidden_act", out.hidden_act);
  out.qkv_bias = c.get_bool("qkv_bias", true);
  if (out.hidden_size % out.n_heads != 0)
    fail(ErrorCode::kInvalidFile, "{}: hidden_size {} is no multiple of num_attention_heads {}", c.path(),
         out.hidden_size, out.n_heads);
  return out;
}

BlipVision BlipVision::bind(const BlipVisionConfig& config, const Binder& binder) {
  const std::int64_t d = config.hidden_size;
  const int p = config.patch_size_px;
  BlipVision out;
  out.config_ = config;
  Binder e = binder.scope("embeddings");
  out.patch_embedding_ = e.patch_embedding("patch_embedding.weight", {d, 3, p, p}, "patch_embedding.bias");
  out.class_embedding_ = e.tensor("class_embedding", {1, 1, d});
  out.position_embedding_ = e.tensor("position_embedding", {1, config.n_rows(), d});
  for (int i = 0; i < config.n_layers; ++i) {
    Binder b = binder.scope(fmt::format("encoder.layers.{}", i));
    Layer layer;
    layer.layer_norm1 = LayerNorm::bind(b, "layer_norm1", d, config.layer_norm_eps);
    layer.qkv = b.linear("self_attn.qkv", 3 * d, d, config.qkv_bias ? Bias::kRequired : Bias::kNone);
    layer.projection = b.linear("self_attn.projection", d, d, Bias::kRequired);
    layer.layer_norm2 = LayerNorm::bind(b, "layer_norm2", d, config.layer_norm_eps);
    layer.fc1 = b.linear("mlp.fc1", config.intermediate_size, d, Bias::kRequired);
    layer.fc2 = b.linear("mlp.fc2", d, config.intermediate_size, Bias::kRequired);
    layer.fc1->set_reader(*layer.fc2);
    out.layers_.push_back(std::move(layer));
  }
  out.post_layernorm_ = LayerNorm::bind(binder, "post_layernorm", d, config.layer_norm_eps);
  return out;
}

void BlipVision::embed(ExecContext& cx, std::span<const TensorView> pictures, TensorView h) const {
  const std::int64_t n_rows = config_.n_rows();
  const std::int64_t p = config_.n_patches();
  const std::int64_t d = config_.hidden_size;
  const auto n = static_cast<std::int64_t>(pictures.size());
  TensorView shown = cx.tapping() ? cx.empty({n * p, d}) : TensorView();
  for (std::int64_t i = 0; i < n; ++i) {
    const ArenaScope scratch(cx.arena());
    TensorView rows = h.rows(i * n_rows, (i + 1) * n_rows);
    cx.copy(class_embedding_.view().reshape({1, d}), rows.rows(0, 1));
    TensorView patches =
        cx.patchify(cx.upload(pictures[static_cast<std::size_t>(i)]), config_.patch_size_px);  // [P, 3 p p]
    cx.linear_into(*patch_embedding_, patches, rows.rows(1, n_rows));                          // [P, D]
    if (cx.tapping()) cx.copy(rows.rows(1, n_rows), shown.rows(i * p, (i + 1) * p));
    cx.add_inplace(rows, position_embedding_.view().reshape({n_rows, d}));
  }
  cx.tap(shown, "vision_model.embeddings.patch_embedding");
  cx.tap(h, "vision_model.embeddings");
}

void BlipVision::run_layer(ExecContext& cx, const Layer& layer, TensorView h,
                           std::span<const std::int32_t> cu) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t heads = config_.n_heads;
  const std::int64_t dh = d / heads;
  TensorView qkv = cx.linear(*layer.qkv, layer.layer_norm1.of(h));  // [T, 3D], contiguous thirds
  const AttentionArgs args{.q = qkv.cols(0, d).split_last(heads, dh),
                           .k = qkv.cols(d, 2 * d).split_last(heads, dh),
                           .v = qkv.cols(2 * d, 3 * d).split_last(heads, dh),
                           .cu_q = cu,
                           .cu_k = cu,
                           .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                           .causal = false};
  TensorView a = cx.attention(args);                                                         // [T, D]
  cx.linear_add(*layer.projection, a, h, "self_attn");                                       // [T, D]
  const Activations f = cx.linear(*layer.fc1, layer.layer_norm2.of(h), config_.hidden_act);  // [T, F]
  cx.linear_add(*layer.fc2, f, h, "mlp");                                                    // [T, D]
}

TensorView BlipVision::forward(ExecContext& cx, std::span<const TensorView> pictures) const {
  const std::int64_t n_rows = config_.n_rows();
  const auto n = static_cast<std::int64_t>(pictures.size());
  TensorView h = cx.empty({n * n_rows, config_.hidden_size});
  embed(cx, pictures, h);
  const auto cu = cx.arena().make_span<std::int32_t>(pictures.size() + 1);
  for (std::int64_t i = 0; i <= n; ++i)
    cu[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * n_rows);
  for (int i = 0; i < config_.n_layers; ++i)
    cx.block({"vision_model", "encoder.layers", i}, h,
             [&] { run_layer(cx, layers_[static_cast<std::size_t>(i)], h, cu); });
  cx.layer_norm_inplace(h, post_layernorm_.weight, post_layernorm_.bias, post_layernorm_.eps);
  cx.tap(h, "vision_model.post_layernorm");
  return h;
}

}  // namespace triptych
