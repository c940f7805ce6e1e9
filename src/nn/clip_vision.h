// The vision tower of CLIP (Radford et al. 2021), and SigLIP's (Zhai et al. 2023), which differs in having no
// class token, no first norm and a bias in its patch embedding. LLaVA and LLaVA-NeXT read the output of one
// or more inner layers. Reference: transformers 5.24, modeling_clip.py (CLIPVisionTransformer),
// modeling_siglip.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/norm.h"
#include "weights/weights.h"

namespace triptych {

struct ClipVisionConfig {
  bool siglip = false;
  std::int64_t hidden_size = 768;         // D
  std::int64_t intermediate_size = 3072;  // F
  int n_layers = 12;
  int n_heads = 12;  // H
  int n_channels = 3;
  int image_size_px = 224;
  int patch_size_px = 32;
  float layer_norm_eps = 1e-5F;
  Activation hidden_act = Activation::kQuickGelu;

  /// Patches of one picture.
  int n_patches() const noexcept { return (image_size_px / patch_size_px) * (image_size_px / patch_size_px); }
  /// Rows of the sequence: the patches and the class token if there is one.
  int n_rows() const noexcept { return n_patches() + (siglip ? 0 : 1); }

  /// Missing fields take the defaults of CLIPVisionConfig (above) or SiglipVisionConfig (gelu_pytorch_tanh,
  /// eps 1e-6, patch 16).
  static ClipVisionConfig parse(const JsonView& vision_config);
};

class ClipVision {
 public:
  ClipVision() = default;
  /// Binds embeddings.*, pre_layrnorm, encoder.layers.N.* and post_layernorm in `binder`'s scope.
  /// `last_layer` is the last hidden state anybody reads, counted as the reference does (0: after the first
  /// norm).
  static ClipVision bind(const ClipVisionConfig& config, const Binder& binder, int last_layer,
                         std::string taps);

  const ClipVisionConfig& config() const noexcept { return config_; }
  /// pictures: n of [C, S, S] -> for each wanted hidden state a tensor [n * n_rows, D]. `layers` ascending,
  /// within last_layer.
  void forward(ExecContext& cx, std::span<const TensorView> pictures, std::span<const int> layers,
               std::span<TensorView> hidden_states) const;

 private:
  struct Layer {
    LayerNorm layer_norm1;
    std::unique_ptr<LinearWeight> qkv_proj;  // [3D, D]
    std::unique_ptr<LinearWeight> out_proj;  // [D, D]
    LayerNorm layer_norm2;
    std::unique_ptr<LinearWeight> fc1;  // [F, D]
    std::unique_ptr<LinearWeight> fc2;  // [D, F]
  };
  TensorView embed(ExecContext& cx, std::span<const TensorView> pictures) const;
  void run_layer(ExecContext& cx, const Layer& layer, TensorView h, std::span<const std::int32_t> cu) const;

  ClipVisionConfig config_;
  std::string taps_;
  std::unique_ptr<LinearWeight> patch_embedding_;  // [D, C p p]
  Tensor class_embedding_;                         // [D]
  Tensor position_embedding_;                      // [n_rows, D]
  std::optional<LayerNorm> pre_layrnorm_;          // the published spelling
  std::vector<Layer> layers_;
  std::optional<LayerNorm> post_layernorm_;  // only shown to observers
  int last_layer_ = 0;
};

}  // namespace triptych
