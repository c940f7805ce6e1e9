// Normalisation layers: weights and the call, nothing else.
#pragma once

#include <string_view>

#include "backend/exec_context.h"
#include "weights/weights.h"

namespace triptych {

/// LayerNorm with weight and bias (Ba et al. 2016), biased variance.
struct LayerNorm {
  Tensor weight, bias;  // [D]
  float eps = 1e-5F;

  static LayerNorm bind(Binder binder, std::string_view name, std::int64_t width, float eps);
  TensorView operator()(ExecContext& cx, const TensorView& x) const {
    return cx.layer_norm(x, weight.view(), bias.view(), eps);
  }
  /// The same as what a linear multiplies, not stored where the backend norms rows as it reads them.
  LinearInput of(const TensorView& x) const {
    return {x, LinearInput::Norm::kLayerNorm, weight.view(), bias.view(), eps};
  }
};

/// RMSNorm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + eps) * weight.
struct RmsNorm {
  Tensor weight;  // [D]
  float eps = 1e-6F;

  static RmsNorm bind(Binder binder, std::string_view name, std::int64_t width, float eps);
  TensorView operator()(ExecContext& cx, const TensorView& x) const {
    return cx.rms_norm(x, weight.view(), eps);
  }
  /// As LayerNorm::of.
  LinearInput of(const TensorView& x) const {
    return {x, LinearInput::Norm::kRmsNorm, weight.view(), {}, eps};
  }
};

}  // namespace triptych
