// Arbitrary text as the file of an earlier benchmark, and a comparison with whatever was accepted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "benchmark/bench_compare.h"
#include "only_errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  return triptych::fuzz::only_errors([&] {
    const EarlierBench earlier =
        parse_earlier_bench({reinterpret_cast<const char*>(data), size}, "earlier.json");
    triptych::fuzz::require(!earlier.runs.empty() && earlier.runs.size() <= 256, "1 to 256 runs");
    BenchRun run;
    run.weights = "int8";
    run.report.peak_memory_bytes = 1;
    run.report.stages = {{.name = "decode", .ms = 1, .n_items = 1, .unit = "tokens", .cost = {}}};
    for (const EarlierRun& before : earlier.runs)
      for (const auto& [name, ms] : before.stages)
        triptych::fuzz::require(ms > 0 && ms <= 1e9, "a time in its range");
    compare_text(earlier, {run}, {});
    compare_json(earlier, {run});
  });
}
