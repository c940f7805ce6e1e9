#include "compress/dry_run.h"

#include <algorithm>
#include <random>

#include "base/stopwatch.h"
#include "compress/gptq.h"
#include "compress/stage_runner.h"

namespace triptych::compress {
namespace {

// Of rounding a matrix [N, K] with feedback: the factor of H, and the errors handed on.
double feedback_work(double n, double k) { return k * k * k / 3 + n * k * k; }

double feedback_seconds_per_work(ThreadPool& pool) {
  constexpr std::int64_t kN = 128, kK = 384;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  Tensor x(DType::kF32, {kK, kK}), w(DType::kF32, {kN, kK});
  for (std::int64_t i = 0; i < kK * kK; ++i) x.f32()[i] = normal(rng);
  for (std::int64_t i = 0; i < kN * kK; ++i) w.f32()[i] = normal(rng);
  Gram h(kK);
  h.add(x.view(), {}, pool);
  const Stopwatch watch;
  gptq(w.view(), h, QuantFormat::parse("int4:g128"), {}, pool);
  return watch.ms() / 1000 / feedback_work(kN, kK);
}

}  // namespace

double CompressPlan::total_bytes() const noexcept {
  double out = other_bytes;
  for (const Part& part : parts) out += part.bytes;
  return out;
}

CompressPlan plan_compression(const std::filesystem::path& from, const CompressOptions& options) {
  CompressPlan out;
  CompressOptions one = options;
  one.recipe.calibration.n_samples = 1;
  StageRunner runner(from, one);
  const StageRunner::Plan plan = runner.plan();
  out.kept = plan.kept;
  for (const PlannedLinear& linear : plan.unreached) out.unreached.push_back(linear.id.text());
  out.n_samples = std::min(options.recipe.calibration.n_samples, count_conversations(options.data));
  out.source_bytes = static_cast<double>(runner.source().weights().total_bytes());
  out.other_bytes = out.source_bytes;
  const auto add = [&](const PlannedLinear& linear) {
    auto part = std::find_if(out.parts.begin(), out.parts.end(),
                             [&](const CompressPlan::Part& p) { return p.name == linear.part; });
    if (part == out.parts.end()) {
      out.parts.push_back({.name = linear.part});
      part = std::prev(out.parts.end());
    }
    ++part->n_linears;
    part->n_weights += linear.n_weights();
    const double bytes =
        linear.format.bits_per_weight(linear.n_in) / 8 * static_cast<double>(linear.n_weights());
    part->bytes += bytes;
    out.codes_bytes += bytes;
    for (const std::string& name : linear.matrices)
      if (const WeightEntry* entry = runner.source().weights().find(name)) {
        part->stored_bytes += static_cast<double>(entry->view.size_bytes());
        out.other_bytes -= static_cast<double>(entry->view.size_bytes());
      }
  };
  for (const PlannedLinear& linear : plan.linears) add(linear);
  for (const PlannedLinear& linear : plan.unreached) add(linear);

  MomentRecorder none(runner.original().model().part_sizes(), runner.pool(),
                      [](const LinearId&) { return false; });
  const Stopwatch watch;
  run_calibration(runner.original(), runner.data(), none);
  out.sample_seconds = watch.ms() / 1000;
  const double per_work = feedback_seconds_per_work(runner.pool());
  const auto stages = runner.stages_of(plan.linears);
  out.n_stages = stages.size();
  for (const auto& stage : stages) {
    double bytes = 0;
    for (const PlannedLinear& linear : stage) {
      const auto k = static_cast<double>(linear.n_in);
      const auto n = static_cast<double>(linear.n_weights()) / k;
      bytes += 4 * (k * k + n * k);                                     // moments, float weights
      out.stage_bytes = std::max(out.stage_bytes, bytes + 16 * k * k);  // and the factor of one
      out.seconds += feedback_work(n, k) * per_work;
    }
  }
  const auto n_samples = static_cast<double>(out.n_samples);
  out.seconds += out.sample_seconds * n_samples * static_cast<double>(out.n_stages + 1);
  if (options.recipe.budget.any()) {
    out.n_measurements =
        static_cast<std::int64_t>(plan.linears.size() * options.recipe.budget.choices.size());
    out.seconds += out.sample_seconds *
                   std::min(n_samples, static_cast<double>(options.recipe.budget.n_samples)) *
                   static_cast<double>(out.n_measurements);
  }
  return out;
}

}  // namespace triptych::compress
