// A benchmark against an earlier one: what `bench --json` wrote, read back as a file from outside.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmark/bench_report.h"

namespace triptych {

struct EarlierRun {
  std::string model;
  std::string weights;  // empty when the file does not say
  double prompt_tokens = 0;
  double first_token_ms = 0, question_first_token_ms = 0;  // 0: not measured
  double peak_memory_bytes = 0;
  std::vector<std::pair<std::string, double>> stages;  // name, ms
};

struct EarlierBench {
  std::string processor, instruction_set;
  double n_threads = 0;
  std::vector<EarlierRun> runs;
};

/// Parses the text of a file. Throws Error(kInvalidFile) that names `source` and the field. At most 256 runs
/// of 64 stages; times lie in (0, 1e9] ms.
EarlierBench parse_earlier_bench(std::string_view text, std::string_view source);

/// The earlier run that one is compared with: that of the same weights, or the only one. Null: none.
const EarlierRun* counterpart(const EarlierBench& earlier, const BenchRun& run);

/// Ratios, stage by stage, of every run: above 1 is sooner (or smaller) than before. Says what else differs.
std::string compare_text(const EarlierBench& earlier, const std::vector<BenchRun>& runs,
                         const MachineLimits& limits);
JsonOut compare_json(const EarlierBench& earlier, const std::vector<BenchRun>& runs);

}  // namespace triptych
