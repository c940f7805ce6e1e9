// Moving scale between channels so that rounding costs less: what reads channel c is multiplied by s[c], what
// writes it divided. The model computes the same. Activation-aware scaling (Lin et al., "AWQ" 2024, section
// 3.2) with the weights' share in it as SmoothQuant has it (Xiao et al. 2023, section 4); the exponents are
// searched for every group by the squared error of its readers' outputs, weights and int8 inputs together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compress/moments.h"
#include "tensor/quant_format.h"
#include "weights/linear_info.h"

namespace triptych::compress {

/// What is read of a group: one matrix, its format, and the moments of its inputs.
struct Reader {
  const TensorView* matrix = nullptr;  // [N, K] float32
  QuantFormat format;
  const ChannelMoments* inputs = nullptr;  // [K]
  bool int8_inputs = true;                 // rows are rounded to int8, a step a row
};

struct Equalization {
  std::vector<float> scales;  // [n_channels], powers that leave the mean of their logarithms at 0
  double activation_power = 0, weight_power = 0;
  double error_before = 0, error_after = 0;  // estimated, of the readers' outputs, a row
};

/// The best of a grid of scales max|x|^a / max|w|^b; all 1 when nothing is better.
Equalization find_equalization(const EqualizationGroup& group, const std::vector<Reader>& readers);

/// Hands the scaled tensors of a group to `set`. `value_of` gives a tensor by its published name as it is
/// so far, in float32.
void apply_equalization(const EqualizationGroup& group, const std::vector<float>& scales,
                        const std::function<Tensor(const std::string&)>& value_of,
                        const std::function<void(const std::string&, Tensor)>& set);

}  // namespace triptych::compress
