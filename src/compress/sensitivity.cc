#include "compress/sensitivity.h"

#include <algorithm>

#include "evaluation/eval.h"

namespace triptych::compress {
namespace {

// Answers of the original, and how far those of changed models are from them.
class AnswerDivergence {
 public:
  AnswerDivergence(StageRunner& runner, std::size_t n_samples)
      : runner_(runner),
        n_samples_(n_samples),
        expected_(answer_logits(runner.original(), runner.data(), n_samples)),
        vocab_(static_cast<std::size_t>(runner.original().info().vocab_size)) {}

  // Mean over the answers' tokens, nats.
  double of(std::shared_ptr<const WeightReplacements> replaced) const {
    const auto model = runner_.open(std::move(replaced));
    const std::vector<float> got = answer_logits(*model, runner_.data(), n_samples_);
    double sum = 0;
    for (std::size_t row = 0; row + vocab_ <= expected_.size(); row += vocab_)
      sum += kl_divergence({expected_.data() + row, vocab_}, {got.data() + row, vocab_});
    return sum / static_cast<double>(std::max<std::size_t>(expected_.size() / vocab_, 1));
  }

 private:
  StageRunner& runner_;
  std::size_t n_samples_;
  std::vector<float> expected_;
  std::size_t vocab_;
};

// The changes of a stage with the codes of one linear only: the others stay floats.
std::shared_ptr<const WeightReplacements> with_one(const WeightEdits& stage, const PlannedLinear& linear) {
  WeightReplacements out;
  out.tensors = stage.all().tensors;
  for (const std::string& name : linear.matrices) out.matrices[name] = stage.all().matrices.at(name);
  return std::make_shared<const WeightReplacements>(std::move(out));
}

}  // namespace

std::vector<std::vector<Choice>> measure_choices(
    StageRunner& runner, const RecipeBudget& budget, const std::vector<PlannedLinear>& linears,
    CompressReport& report, const std::function<void(const CompressProgress&)>& progress) {
  const AnswerDivergence divergence(runner, budget.n_samples);
  std::vector<std::vector<Choice>> choices(linears.size());
  const auto n = static_cast<std::int64_t>(linears.size() * budget.choices.size());
  std::int64_t n_done = 0;
  for (const std::span<const PlannedLinear> stage : runner.stages_of(linears, false)) {
    const auto first = static_cast<std::size_t>(stage.data() - linears.data());
    for (const QuantFormat& format : budget.choices) {
      std::vector<PlannedLinear> tried(stage.begin(), stage.end());
      for (PlannedLinear& linear : tried) linear.format = format;
      WeightEdits edits(runner.source());
      CompressReport ignored;
      runner.run(tried, edits, ignored, false);
      for (std::size_t i = 0; i < tried.size(); ++i) {
        if (progress) progress({"sensitivity", tried[i].id.text(), n_done++, n});
        const double loss = divergence.of(with_one(edits, tried[i]));
        choices[first + i].push_back(
            {format.bits_per_weight(tried[i].n_in) / 8 * static_cast<double>(tried[i].n_weights()), loss});
        report.sensitivities.push_back({tried[i].id.text(), format.to_string(), loss});
      }
    }
  }
  return choices;
}

void set_formats(const std::vector<std::vector<Choice>>& choices, const RecipeBudget& budget,
                 double max_bytes, std::vector<PlannedLinear>& linears) {
  const std::vector<std::size_t> chosen = choose_within(choices, max_bytes);
  for (std::size_t i = 0; i < linears.size(); ++i) linears[i].format = budget.choices[chosen[i]];
}

std::vector<FrontPoint> promised_front(const std::vector<std::vector<Choice>>& choices, double n_weights) {
  double least = 0, most = 0;
  for (const auto& linear : choices) {
    const auto by_bytes = [](const Choice& x, const Choice& y) { return x.bytes < y.bytes; };
    least += std::min_element(linear.begin(), linear.end(), by_bytes)->bytes;
    most += std::max_element(linear.begin(), linear.end(), by_bytes)->bytes;
  }
  std::vector<FrontPoint> out;
  constexpr int kPoints = 24;
  for (int i = 0; i <= kPoints; ++i) {
    // A little more, for what the knapsack rounds up.
    const double bytes =
        least + (most - least) * i / kPoints * (1 + static_cast<double>(choices.size()) / 2000);
    const std::vector<std::size_t> chosen = choose_within(choices, bytes);
    FrontPoint point;
    double used = 0;
    for (std::size_t l = 0; l < chosen.size(); ++l) {
      used += choices[l][chosen[l]].bytes;
      point.divergence += choices[l][chosen[l]].loss;
    }
    point.bits = 8 * used / n_weights;
    if (out.empty() || point.bits > out.back().bits) out.push_back(point);
  }
  return out;
}

double answers_found(LoadedModel& model, const CalibrationData& data) {
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  const std::vector<float> logits = answer_logits(model, data, data.samples.size());
  std::size_t row = 0;
  std::int64_t n_found = 0;
  for (const CalibrationSample& sample : data.samples) {
    const std::vector<std::int32_t>& ids = sample.request.layout.input_ids;
    bool found = true;
    for (std::int64_t t = 0; t < sample.n_answer_tokens; ++t, ++row) {
      const float* const begin = logits.data() + row * vocab;
      const auto top = std::max_element(begin, begin + vocab) - begin;
      found = found && top == ids[ids.size() - static_cast<std::size_t>(sample.n_answer_tokens - t)];
    }
    n_found += found ? 1 : 0;
  }
  return static_cast<double>(n_found) / static_cast<double>(std::max<std::size_t>(data.samples.size(), 1));
}

}  // namespace triptych::compress
