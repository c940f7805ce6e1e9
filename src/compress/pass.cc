#include "compress/pass.h"

#include <algorithm>

namespace triptych::compress {

const std::vector<PassInfo>& pass_infos() {
  static const std::vector<PassInfo> kAll = {equalize_pass(), fold_residual_pass(), round_pass(),
                                             bias_correction_pass()};
  return kAll;
}

const PassInfo* find_pass(std::string_view name) {
  for (const PassInfo& info : pass_infos())
    if (info.name == name) return &info;
  return nullptr;
}

std::int64_t PlannedLinear::n_weights() const noexcept {
  std::int64_t rows = 0;
  for (const std::int64_t n : n_rows) rows += n;
  return rows * n_in;
}

const PlannedLinear* StageWork::linear_with(const std::string& matrix) const {
  for (const PlannedLinear& linear : linears)
    if (std::find(linear.matrices.begin(), linear.matrices.end(), matrix) != linear.matrices.end())
      return &linear;
  return nullptr;
}

void StageWork::divide_inputs(const LinearId& id, std::span<const float> by) {
  moments.divide_channels(id, by);
  std::vector<float>& scales = input_scales[id];
  scales.resize(by.size(), 1.0F);
  for (std::size_t i = 0; i < by.size(); ++i) scales[i] *= by[i];
  if (const auto found = pairs.find(id); found != pairs.end()) found->second.divide_channels(by);
}

}  // namespace triptych::compress
