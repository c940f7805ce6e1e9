// What LLaVA, LLaVA-NeXT and LLaVA-OneVision share: a tower, the choice of its hidden states, and the
// two-layer projector into the language model. Reference: transformers 5.24, modeling_llava.py
// (get_image_features, LlavaMultiModalProjector).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/clip_vision.h"
#include "weights/weights.h"

namespace triptych {

/// What a configuration class leaves out.
struct LlavaVisionDefaults {
  ClipVisionConfig tower;  // when vision_config is missing
  int feature_layer = -2;
  bool drop_first_row = true;
};
/// LlavaConfig's and LlavaNextConfig's: CLIP ViT-L/14 at 336 pixels.
LlavaVisionDefaults llava_vision_defaults();

struct LlavaVisionConfig {
  ClipVisionConfig tower;
  std::vector<int> feature_layers;  // hidden states read, as indices >= 0, in the order they are concatenated
  bool drop_first_row = true;       // vision_feature_select_strategy "default": without the class token
  Activation projector_hidden_act = Activation::kGelu;
  Bias projector_bias = Bias::kRequired;

  /// Reads vision_config, vision_feature_layer (an integer or a list, counted over hidden states, negative
  /// from the end), vision_feature_select_strategy, projector_hidden_act and multimodal_projector_bias.
  static LlavaVisionConfig parse(const JsonView& config,
                                 const LlavaVisionDefaults& defaults = llava_vision_defaults());
  /// Adds one entry of vision_feature_layer.
  void add_feature_layer(const JsonView& value);
  std::int64_t tokens_per_picture() const noexcept { return tower.n_rows() - (drop_first_row ? 1 : 0); }
};

class LlavaVision {
 public:
  LlavaVision() = default;
  /// Binds vision_tower.* of `vision` and multi_modal_projector.* of `projector`; `width` is the language
  /// model's.
  static LlavaVision bind(const LlavaVisionConfig& config, const Binder& vision, const Binder& projector,
                          std::int64_t width);
  const LlavaVisionConfig& config() const noexcept { return config_; }
  /// pictures: n of [3, S, S] -> [n * tokens_per_picture, D].
  TensorView encode(ExecContext& cx, std::span<const TensorView> pictures) const;

 private:
  LlavaVisionConfig config_;
  ClipVision vision_tower_;
  std::unique_ptr<LinearWeight> linear_1_;  // [D, Dv * layers read]
  std::unique_ptr<LinearWeight> linear_2_;  // [D, D]
  std::int64_t width_ = 0;
};

}  // namespace triptych
