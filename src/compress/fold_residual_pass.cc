// The residual of the tower's quantization folded into the linears behind it: a projector reads y where the
// original reads x, and gets the weights that give of y what the old ones gave of x
// (compress/paired_moments.h), before it is rounded itself. No cost when the model runs.
#include <cmath>

#include "compress/pass.h"

namespace triptych::compress {
namespace {

struct Fit {
  double alpha = 0, lambda = 0;
  double error = 0;  // on rows that were held out
};

class FoldResidualPass final : public Pass {
 public:
  explicit FoldResidualPass(const PassSettings& settings)
      : alpha_(settings.at("alpha")), lambda_(settings.at("lambda")) {}

  bool wants_pairs(const PlannedLinear& linear) const override { return linear.part == "projector"; }

  void run(StageWork& stage) override {
    for (const PlannedLinear& linear : stage.linears) {
      const auto found = stage.pairs.find(linear.id);
      if (found != stage.pairs.end()) fold(stage, linear, found->second);
    }
  }

 private:
  void fold(StageWork& stage, const PlannedLinear& linear, const PairedMoments& pairs) const {
    const PairSums all = pairs.all();
    if (all.n == 0) return;
    const bool can_judge = pairs.fitting().n > 0 && pairs.held_out().n > 0;
    const PairSums& fitting = can_judge ? pairs.fitting() : all;
    const PairSums& judging = can_judge ? pairs.held_out() : all;
    FoldReport report{.name = linear.id.text()};
    for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
      const Tensor stored = stage.weights.value_of(linear.matrices[i]);
      const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
      const std::string bias = linear.bias_of(i);
      const double before = fold_error(w, w, {}, judging);
      const Fit best = choose(w, fitting, judging, !bias.empty(), can_judge);
      report.error_before += before;
      report.error_after += std::min(best.error, before);
      if (!(best.error < before)) continue;
      report.alpha = best.alpha;
      report.lambda = best.lambda;
      ResidualFold made = fold_residual(w, all, best.alpha, best.lambda, !bias.empty());
      if (!bias.empty()) {
        Tensor shifted = stage.weights.value_of(bias);
        for (std::size_t n = 0; n < made.shift.size(); ++n) shifted.f32()[n] += made.shift[n];
        stage.weights.set(bias, std::move(shifted));
      }
      Tensor same_shape(DType::kF32, stored.view().shape());
      std::copy_n(made.weight.f32(), made.weight.view().numel(), same_shape.f32());
      stage.weights.set(linear.matrices[i], std::move(same_shape));
      stage.fitted.insert(linear.id);
    }
    stage.report.folds.push_back(std::move(report));
  }

  Fit choose(const TensorView& w, const PairSums& fitting, const PairSums& judging, bool has_bias,
             bool can_judge) const {
    // Without rows to judge by, what is safe.
    std::vector<double> alphas = {alpha_.value_or(0.3)}, lambdas = {lambda_.value_or(0.1)};
    if (!alpha_ && can_judge) alphas = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
    if (!lambda_ && can_judge) lambdas = {1e-4, 1e-3, 1e-2, 1e-1, 1.0};
    Fit best{.error = std::numeric_limits<double>::infinity()};
    for (const double lambda : lambdas)
      for (const double alpha : alphas) {
        const ResidualFold fold = fold_residual(w, fitting, alpha, lambda, has_bias);
        const double error = fold_error(w, fold.weight.view(), fold.shift, judging);
        if (error < best.error) best = {alpha, lambda, error};
      }
    return best;
  }

  std::optional<double> alpha_, lambda_;
};

}  // namespace

PassInfo fold_residual_pass() {
  return {
      .name = "fold_residual",
      .reads = "inputs of the projectors, in the original and now",
      .changes = "weights and biases of the projectors",
      .reports = "squared error of their outputs, before and after, on pictures held out",
      .parameters = {{.name = "alpha", .fallback = std::nullopt, .min = 0, .max = 1, .may_be_auto = true},
                     {.name = "lambda", .fallback = std::nullopt, .min = 0, .max = 100, .may_be_auto = true}},
      .make = [](const PassSettings& settings) -> std::unique_ptr<Pass> {
        return std::make_unique<FoldResidualPass>(settings);
      }};
}

}  // namespace triptych::compress
