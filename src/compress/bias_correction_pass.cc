// Biases that put the mean of each output right (Nagel et al. 2019, section 4.2): rounding shifts it, and so
// do the errors of everything in front.
#include "compress/pass.h"
#include "tensor/quant_codec.h"

namespace triptych::compress {
namespace {

class BiasCorrectionPass final : public Pass {
 public:
  void run(StageWork& stage) override {
    for (const PlannedLinear& linear : stage.linears)
      for (std::size_t i = 0; i < linear.matrices.size(); ++i)
        if (const std::string bias = linear.bias_of(i); !bias.empty()) correct(stage, linear, i, bias);
  }

 private:
  static void correct(StageWork& stage, const PlannedLinear& linear, std::size_t i, const std::string& bias) {
    const QuantizedMatrix* codes = stage.weights.codes_of(linear.matrices[i]);
    const ChannelMoments* now = stage.moments.channels(linear.id);
    const ChannelMoments* original = stage.float_moments.channels(linear.id);
    if (codes == nullptr || now == nullptr || original == nullptr) return;
    // Weights that were fitted to these inputs lack nothing but what their own rounding shifts.
    std::vector<double> target = now->mean;
    if (!stage.fitted.contains(linear.id)) {
      target = original->mean;
      if (const auto scales = stage.input_scales.find(linear.id); scales != stage.input_scales.end())
        for (std::size_t k = 0; k < target.size(); ++k) target[k] /= static_cast<double>(scales->second[k]);
    }
    const Tensor stored = stage.weights.value_of(linear.matrices[i]);
    const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
    const Tensor rounded = dequantize(*codes);
    Tensor corrected = stage.weights.value_of(bias);
    double sum = 0;
    for (std::int64_t n = 0; n < linear.n_rows[i]; ++n) {
      double shift = 0;
      for (std::int64_t k = 0; k < linear.n_in; ++k)
        shift +=
            static_cast<double>(w.row(n).cf32()[k]) * target[static_cast<std::size_t>(k)] -
            static_cast<double>(rounded.view().row(n).cf32()[k]) * now->mean[static_cast<std::size_t>(k)];
      corrected.f32()[n] += static_cast<float>(shift);
      sum += shift * shift;
    }
    stage.weights.set(bias, std::move(corrected));
    stage.report.biases.push_back({bias, sum / static_cast<double>(linear.n_rows[i])});
  }
};

}  // namespace

PassInfo bias_correction_pass() {
  return {.name = "bias_correction",
          .reads = "mean inputs in the original and now, codes",
          .changes = "biases",
          .reports = "mean square of the shift of each bias",
          .parameters = {},
          .follows_rounding = true,
          .make = [](const PassSettings&) -> std::unique_ptr<Pass> {
            return std::make_unique<BiasCorrectionPass>();
          }};
}

}  // namespace triptych::compress
