#include "benchmark/bench_compare.h"

#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "base/error.h"
#include "base/json.h"
#include "report/text_table.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxRuns = 256;
constexpr std::size_t kMaxStages = 64;
constexpr double kMax_ms = 1e9;

double number_in(const JsonView& view, double low, double high, const char* what) {
  const double value = view.as_double();
  if (!(value >= low && value <= high)) view.fail_expected(what);
  return value;
}

// 0 when absent.
double optional_number(const JsonView& object, std::string_view key, double high, const char* what) {
  const auto found = object.find(key);
  return found ? number_in(*found, 0, high, what) : 0;
}

EarlierRun parse_run(const JsonView& view) {
  EarlierRun out;
  out.model = view.at("model").as_string();
  out.weights = view.get_string("weights", "");
  out.prompt_tokens = optional_number(view, "prompt_tokens", 1e12, "a number of tokens");
  out.first_token_ms = optional_number(view, "first_token_ms", kMax_ms, "milliseconds, at most 1e9");
  out.question_first_token_ms =
      optional_number(view, "question_first_token_ms", kMax_ms, "milliseconds, at most 1e9");
  out.peak_memory_bytes = optional_number(view, "peak_memory_bytes", 1e18, "a number of bytes");
  const JsonView stages = view.at("stages");
  if (!stages.is_array() || stages.raw().size() > kMaxStages)
    stages.fail_expected("an array of at most 64 stages");
  for (const JsonView& stage : stages.items()) {
    const double ms = number_in(stage.at("ms"), 0, kMax_ms, "milliseconds, at most 1e9");
    if (ms <= 0) stage.at("ms").fail_expected("more than 0 milliseconds");
    const std::string name = stage.at("name").as_string();
    for (const auto& [known, known_ms] : out.stages)
      if (known == name) stage.at("name").fail_expected("a name that no stage before it has");
    out.stages.emplace_back(name, ms);
  }
  return out;
}

struct Ratio {
  std::string what, before, now;
  double value = 0;  // before / now
};

std::vector<Ratio> ratios(const EarlierRun& earlier, const BenchReport& now) {
  std::vector<Ratio> out;
  const auto add_ms = [&](const std::string& what, double before_ms, double now_ms) {
    if (before_ms > 0 && now_ms > 0)
      out.push_back({what, format_ms(before_ms), format_ms(now_ms), before_ms / now_ms});
  };
  for (const BenchStage& stage : now.stages)
    for (const auto& [name, ms] : earlier.stages)
      if (name == stage.name) add_ms(name, ms, stage.ms);
  add_ms("first token", earlier.first_token_ms, now.first_token_ms);
  add_ms("question, first token", earlier.question_first_token_ms, now.question_first_token_ms);
  const auto peak = static_cast<double>(now.peak_memory_bytes);
  if (earlier.peak_memory_bytes > 0 && peak > 0)
    out.push_back({"peak memory", format_bytes(earlier.peak_memory_bytes), format_bytes(peak),
                   earlier.peak_memory_bytes / peak});
  return out;
}

}  // namespace

EarlierBench parse_earlier_bench(std::string_view text, std::string_view source) {
  const Json document = parse_json(text, source);
  const JsonView root(document, std::string(source));
  EarlierBench out;
  if (const auto limits = root.find("limits")) {
    out.processor = limits->get_string("processor", "");
    out.instruction_set = limits->get_string("instruction_set", "");
    out.n_threads = optional_number(*limits, "threads", 1e6, "a number of threads");
  }
  const auto runs = root.find("runs");
  if (!runs) {
    out.runs.push_back(parse_run(root));
    return out;
  }
  if (!runs->is_array() || runs->raw().empty() || runs->raw().size() > kMaxRuns)
    runs->fail_expected("an array of 1 to 256 runs");
  for (const JsonView& run : runs->items()) out.runs.push_back(parse_run(run));
  return out;
}

const EarlierRun* counterpart(const EarlierBench& earlier, const BenchRun& run) {
  for (const EarlierRun& candidate : earlier.runs)
    if (candidate.weights == run.weights) return &candidate;
  return earlier.runs.size() == 1 ? &earlier.runs.front() : nullptr;
}

std::string compare_text(const EarlierBench& earlier, const std::vector<BenchRun>& runs,
                         const MachineLimits& limits) {
  std::string out;
  const auto differs = [&](const char* what, const std::string& before, const std::string& now) {
    if (!before.empty() && before != now)
      out += fmt::format("note: {} was {} and is {}\n", what, one_line(before), one_line(now));
  };
  differs("the processor", earlier.processor, cpu_name());
  differs("the instruction set", earlier.instruction_set, std::string(to_string(active_isa())));
  if (earlier.n_threads > 0)
    differs("the number of threads", fmt::format("{:.0f}", earlier.n_threads),
            fmt::format("{}", limits.n_threads));
  TextTable table(
      {{"weights", Align::kLeft}, {"stage", Align::kLeft}, {"earlier"}, {"now"}, {"earlier / now"}});
  for (const BenchRun& run : runs) {
    const EarlierRun* before = counterpart(earlier, run);
    if (before == nullptr) {
      out += fmt::format("note: the earlier file has no run with weights {}\n", one_line(run.weights));
      continue;
    }
    differs("the model", before->model, run.model);
    differs("the format of the weights", before->weights, run.weights);
    if (before->prompt_tokens > 0)
      differs("the number of prompt tokens", fmt::format("{:.0f}", before->prompt_tokens),
              fmt::format("{}", run.report.n_prompt_tokens));
    for (const Ratio& ratio : ratios(*before, run.report))
      table.add_row(
          {one_line(run.weights), ratio.what, ratio.before, ratio.now, fmt::format("{:.2f}x", ratio.value)});
  }
  return out + table.render();
}

JsonOut compare_json(const EarlierBench& earlier, const std::vector<BenchRun>& runs) {
  JsonOut out = JsonOut::array();
  for (const BenchRun& run : runs) {
    const EarlierRun* before = counterpart(earlier, run);
    if (before == nullptr) continue;
    JsonOut one = {{"weights", run.weights}, {"earlier_weights", before->weights}};
    one["earlier_over_now"] = JsonOut::object();
    for (const Ratio& ratio : ratios(*before, run.report)) one["earlier_over_now"][ratio.what] = ratio.value;
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace triptych
