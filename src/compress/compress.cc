#include "compress/compress.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "compress/sensitivity.h"
#include "compress/stage_runner.h"
#include "io/mapped_file.h"
#include "report/text_table.h"
#include "tensor/quant_codec.h"

namespace triptych::compress {
namespace {

namespace fs = std::filesystem;

void round_to_nearest(const PlannedLinear& linear, WeightEdits& weights) {
  for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
    const Tensor stored = weights.value_of(linear.matrices[i]);
    const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
    weights.set_codes(linear.matrices[i], std::make_shared<QuantizedMatrix>(quantize(w, linear.format)));
  }
}

double n_weights_of(const std::vector<PlannedLinear>& linears) {
  double out = 0;
  for (const PlannedLinear& linear : linears) out += static_cast<double>(linear.n_weights());
  return out;
}

class Compression {
 public:
  Compression(const fs::path& from, const CompressOptions& options)
      : options_(options), budget_(options.recipe.budget), runner_(from, options), plan_(runner_.plan()) {
    if (plan_.linears.empty()) fail(ErrorCode::kInvalidArgument, "no linear of the model is to be quantized");
    report_.n_samples = static_cast<std::int64_t>(runner_.data().samples.size());
    report_.n_image_tokens = runner_.data().n_image_tokens;
    report_.n_text_tokens = runner_.data().n_text_tokens;
    report_.data_fingerprint = runner_.data().fingerprint;
    report_.kept = plan_.kept;
  }

  // Chooses formats, then makes all codes.
  WeightEdits make() {
    if (!budget_.any()) return run_stages(report_);
    // Linears that no sample reaches take the smallest format and no part in the choice.
    const auto smaller = [](const QuantFormat& x, const QuantFormat& y) {
      return x.bits_per_weight(4096) < y.bits_per_weight(4096);
    };
    const QuantFormat smallest = *std::min_element(budget_.choices.begin(), budget_.choices.end(), smaller);
    for (PlannedLinear& linear : plan_.unreached) linear.format = smallest;
    const double n_weights = n_weights_of(plan_.linears);
    bytes_ = budget_.bits > 0 ? budget_.bits / 8 * n_weights : budget_.bytes - other_bytes();
    if (budget_.max_loss == 0) check_smallest();
    choices_ = measure_choices(runner_, budget_, plan_.linears, report_, options_.progress);
    report_.front = promised_front(choices_, n_weights);
    if (budget_.max_loss > 0) return smallest_within_loss(n_weights);
    set_formats(choices_, budget_, bytes_, plan_.linears);
    return run_stages(report_);
  }

  // The files took so much more than the codes in them: their layout rounds up.
  WeightEdits make_smaller(double bytes_over) {
    bytes_ -= bytes_over;
    check_smallest();
    set_formats(choices_, budget_, bytes_, plan_.linears);
    report_.linears.clear();
    report_.equalizations.clear();
    report_.folds.clear();
    report_.biases.clear();
    return run_stages(report_);
  }

  CompressReport& report() noexcept { return report_; }
  const StageRunner::Plan& plan() const noexcept { return plan_; }

 private:
  // Before hours of measurements.
  void check_smallest() const {
    double least = 0;
    for (const PlannedLinear& linear : plan_.linears) {
      double bits = 16;
      for (const QuantFormat& format : budget_.choices)
        bits = std::min(bits, format.bits_per_weight(linear.n_in));
      least += bits / 8 * static_cast<double>(linear.n_weights());
    }
    if (least > bytes_)
      fail(ErrorCode::kInvalidArgument,
           "the budget leaves {} for the linears, which take at least {} in the formats to choose from",
           format_bytes(std::max(bytes_, 0.0)), format_bytes(least));
  }

  // Of all that is no choice: tensors that stay, codes of what no sample reaches, those of a tied head.
  double other_bytes() {
    auto out = static_cast<double>(runner_.source().weights().total_bytes());
    for (const auto* linears : {&plan_.linears, &plan_.unreached})
      for (const PlannedLinear& linear : *linears)
        for (const std::string& name : linear.matrices)
          if (const WeightEntry* entry = runner_.source().weights().find(name))
            out -= static_cast<double>(entry->view.size_bytes());
    for (const PlannedLinear& linear : plan_.unreached)
      out += linear.format.bits_per_weight(linear.n_in) / 8 * static_cast<double>(linear.n_weights());
    if (plan_.tied_head)
      for (const PartSizes::Linear& linear : runner_.original().model().part_sizes().linears)
        if (linear.is_embedding)
          out += static_cast<double>(
              plan_.tied_head->matrix_bytes(linear.weight->n_out(), linear.weight->n_in()));
    return out;
  }

  WeightEdits run_stages(CompressReport& report) {
    const auto stages = runner_.stages_of(plan_.linears);
    WeightEdits weights(runner_.source());
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (options_.progress)
        options_.progress({"compress", stages[i].front().id.text(), static_cast<std::int64_t>(i),
                           static_cast<std::int64_t>(stages.size())});
      runner_.run(stages[i], weights, report);
      for (const PlannedLinear& linear : stages[i])
        for (const std::string& name : linear.matrices) weights.drop_value(name);
    }
    return weights;
  }

  // Halves the range of sizes, the whole way of compressing at each.
  WeightEdits smallest_within_loss(double n_weights) {
    constexpr int kTrials = 6;
    const double before = answers_found(runner_.original(), runner_.data());
    double low = report_.front.front().bits, high = report_.front.back().bits;
    // For what the knapsack rounds up.
    const double slack = (high - low) / 8 * n_weights * static_cast<double>(choices_.size()) / 2000;
    std::optional<WeightEdits> best;
    CompressReport of_best;
    for (int trial = 0; trial < kTrials; ++trial) {
      // The ends first: the smallest may do, and the largest must.
      const double bits = trial == 0 ? low : trial == 1 ? high : (low + high) / 2;
      set_formats(choices_, budget_, bits / 8 * n_weights + slack, plan_.linears);
      CompressReport made;
      WeightEdits weights = run_stages(made);
      const double lost =
          100 * (before - answers_found(*runner_.open(weights.replacements()), runner_.data()));
      report_.trials.push_back({made.bits_per_weight(), lost});
      if (lost <= budget_.max_loss) {
        best = std::move(weights);
        of_best = std::move(made);
        high = bits;
        if (trial == 0) break;
      } else if (trial == 1) {
        fail(ErrorCode::kInvalidArgument,
             "even the largest of the formats to choose from lose {:.2f} points, more than {:g}", lost,
             budget_.max_loss);
      } else {
        low = bits;
      }
    }
    report_.linears = std::move(of_best.linears);
    report_.equalizations = std::move(of_best.equalizations);
    report_.folds = std::move(of_best.folds);
    report_.biases = std::move(of_best.biases);
    return std::move(*best);
  }

  const CompressOptions& options_;
  const RecipeBudget& budget_;
  StageRunner runner_;
  StageRunner::Plan plan_;
  double bytes_ = 0;  // that the linears may take
  std::vector<std::vector<Choice>> choices_;
  CompressReport report_;
};

}  // namespace

double CompressReport::bits_per_weight() const {
  double bits = 0, n = 0;
  for (const LinearReport& linear : linears) {
    bits += linear.bits_per_weight * static_cast<double>(linear.n_weights);
    n += static_cast<double>(linear.n_weights);
  }
  return n > 0 ? bits / n : 0;
}

CompressReport compress_checkpoint(const fs::path& from, const fs::path& to, const CompressOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Compression compression(from, options);
  WeightEdits weights = compression.make();
  ConvertOptions convert{.load = options.load, .replace = options.replace};
  convert.load.weight_formats.lm_head = compression.plan().tied_head;
  convert.stated_formats = options.recipe.formats;
  ConvertReport written;
  for (int attempt = 0;; ++attempt) {
    for (const PlannedLinear& linear : compression.plan().unreached) round_to_nearest(linear, weights);
    if (options.progress) options.progress({"writing", {}, 0, 1});
    convert.load.replaced_weights = weights.replacements();
    written = convert_checkpoint(from, to, convert);
    const double budget = options.recipe.budget.bytes;
    const double over = static_cast<double>(written.written_bytes) - budget;
    if (budget == 0 || over <= 0) break;
    if (attempt == 4)
      fail(ErrorCode::kInvalidArgument, "a budget of {}: the files still take {}", format_bytes(budget),
           format_bytes(static_cast<double>(written.written_bytes)));
    weights = compression.make_smaller(over);
    convert.replace = true;
  }
  CompressReport report = std::move(compression.report());
  report.written = written;
  for (const PlannedLinear& linear : compression.plan().unreached)
    report.unreached.push_back(linear.id.text());
  report.recipe = to_yaml(options.recipe);
  write_text_file(to / "recipe.yaml", report.recipe);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace triptych::compress
