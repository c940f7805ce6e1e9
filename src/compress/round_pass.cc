// Matrices become codes: scales by a search over ranges, then rounding with feedback (compress/gptq.h) or to
// nearest.
#include <algorithm>

#include "compress/gptq.h"
#include "compress/pass.h"

namespace triptych::compress {
namespace {

class RoundPass final : public Pass {
 public:
  explicit RoundPass(const PassSettings& settings)
      : feedback_(settings.at("feedback").value_or(1) != 0),
        clip_to_(static_cast<float>(settings.at("clip_to").value_or(0.7))),
        damping_(settings.at("damping").value_or(0.01)) {}

  void run(StageWork& stage) override {
    for (const PlannedLinear& linear : stage.linears) round(stage, linear);
  }

 private:
  void round(StageWork& stage, const PlannedLinear& linear) const {
    const Gram& h = *stage.moments.gram(linear.id);
    LinearReport out{.name = linear.id.text(),
                     .part = linear.part,
                     .format = linear.format.to_string(),
                     .n_weights = linear.n_weights(),
                     .bits_per_weight = linear.format.bits_per_weight(linear.n_in)};
    double energy = 0;
    for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
      const Tensor stored = stage.weights.value_of(linear.matrices[i]);
      const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
      const Tensor nothing = Tensor::zeros(DType::kF32, w.shape());
      energy += output_error(w, nothing.view(), h, stage.pool);
      out.error_nearest += output_error(w, dequantize(quantize(w, linear.format)).view(), h, stage.pool);
      GptqReport report{};
      auto codes = std::make_shared<const QuantizedMatrix>(rounded(w, linear.format, h, stage.pool, report));
      out.error += output_error(w, dequantize(*codes).view(), h, stage.pool);
      out.damping = std::max(out.damping, report.damping);
      stage.weights.set_codes(linear.matrices[i], std::move(codes));
    }
    if (energy > 0) {
      out.error /= energy;
      out.error_nearest /= energy;
    }
    stage.report.linears.push_back(std::move(out));
  }

  QuantizedMatrix rounded(const TensorView& w, const QuantFormat& format, const Gram& h, ThreadPool& pool,
                          GptqReport& report) const {
    if (!feedback_ || format.two_level) return quantize(w, format, {.clip_to = clip_to_});
    return gptq(w, h, format, {.damping = damping_, .clip_to = clip_to_}, pool, &report);
  }

  bool feedback_;
  float clip_to_;
  double damping_;
};

}  // namespace

PassInfo round_pass() {
  return {.name = "round",
          .reads = "second moments of inputs",
          .changes = "matrices, which become codes",
          .reports = "squared error of outputs, rounded to nearest and as written; damping",
          .parameters = {{.name = "feedback", .fallback = 1, .min = 0, .max = 1},
                         {.name = "clip_to", .fallback = 0.7, .min = 0.1, .max = 1},
                         {.name = "damping", .fallback = 0.01, .min = 1e-6, .max = 1}},
          .make = [](const PassSettings& settings) -> std::unique_ptr<Pass> {
            return std::make_unique<RoundPass>(settings);
          }};
}

}  // namespace triptych::compress
