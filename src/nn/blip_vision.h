// The vision tower of BLIP-2 and InstructBLIP: EVA-CLIP's ViT-g (Fang et al. 2022) without its last block,
// with a final norm over all rows. Reference: transformers 5.24, modeling_blip_2.py (Blip2VisionModel).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/norm.h"
#include "weights/weights.h"

namespace triptych {

struct BlipVisionConfig {
  std::int64_t hidden_size = 1408;        // D
  std::int64_t intermediate_size = 6144;  // F
  int n_layers = 39;
  int n_heads = 16;  // H
  int image_size_px = 224;
  int patch_size_px = 14;
  float layer_norm_eps = 1e-6F;
  Activation hidden_act = Activation::kGelu;
  bool qkv_bias = true;

  int n_patches() const noexcept { return (image_size_px / patch_size_px) * (image_size_px / patch_size_px); }
  /// Class token and patches.
  int n_rows() const noexcept { return n_patches() + 1; }
  /// Missing fields take the defaults of Blip2VisionConfig (above).
  static BlipVisionConfig parse(const JsonView& vision_config);
};

class BlipVision {
 public:
  BlipVision() = default;
  static BlipVision bind(const BlipVisionConfig& config, const Binder& binder);
  const BlipVisionConfig& config() const noexcept { return config_; }
  /// pictures: n of [3, S, S] -> [n * n_rows, D]. Taps are named below "vision_model".
  TensorView forward(ExecContext& cx, std::span<const TensorView> pictures) const;

 private:
  struct Layer {
    LayerNorm layer_norm1;
    std::unique_ptr<LinearWeight> qkv;         // [3D, D]
    std::unique_ptr<LinearWeight> projection;  // [D, D]
    LayerNorm layer_norm2;
    std::unique_ptr<LinearWeight> fc1;  // [F, D]
    std::unique_ptr<LinearWeight> fc2;  // [D, F]
  };
  void embed(ExecContext& cx, std::span<const TensorView> pictures, TensorView h) const;
  void run_layer(ExecContext& cx, const Layer& layer, TensorView h, std::span<const std::int32_t> cu) const;

  BlipVisionConfig config_;
  std::unique_ptr<LinearWeight> patch_embedding_;  // [D, 3 p p]
  Tensor class_embedding_;                         // [1, 1, D]
  Tensor position_embedding_;                      // [1, n_rows, D]
  std::vector<Layer> layers_;
  LayerNorm post_layernorm_;
};

}  // namespace triptych
