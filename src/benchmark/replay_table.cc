#include "benchmark/replay_table.h"

#include <fmt/format.h>

#include "report/text_table.h"

namespace triptych {
namespace {

constexpr double kMaxFragmentation = 0.05;
constexpr double kMinSaving = 0.20;

std::string bytes(std::size_t n) { return format_bytes(static_cast<double>(n)); }

double share_of(std::size_t part, std::size_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string replay_table(const std::string& title, const std::vector<ReplayResult>& results) {
  const ReplayResult& malloc = results.front();
  TextTable table({{"allocator", Align::kLeft},
                   {"resident at peak"},
                   {"fragmentation"},
                   {"most resident"},
                   {"of malloc's"},
                   {"left at the end"},
                   {"a call"},
                   {"all, touched"}});
  for (const ReplayResult& r : results) {
    const std::string name = r.version.empty() ? r.allocator : r.allocator + " " + r.version;
    if (!r.problem.empty()) {
      table.add_row({name, r.problem});
      continue;
    }
    table.add_row({name, bytes(r.at_peak_bytes), format_percent(r.fragmentation()), bytes(r.peak_bytes),
                   malloc.peak_bytes > 0 ? format_percent(share_of(r.peak_bytes, malloc.peak_bytes)) : "-",
                   bytes(r.end_bytes), fmt::format("{:.0f} ns", r.ns_per_call), format_ms(r.total_ms)});
  }
  const ReplayResult& pool = results.back();
  const double saving = malloc.peak_bytes > 0 ? 1 - share_of(pool.peak_bytes, malloc.peak_bytes) : 0;
  return fmt::format(
      "\n{}: {} calls, at most {} in use\n{}"
      "  pool: fragmentation {} the goal of {}; {} below malloc's peak, goal {}\n",
      title, format_count(static_cast<double>(malloc.n_calls)), bytes(malloc.used_bytes), table.render(2),
      pool.fragmentation() <= kMaxFragmentation ? "meets" : "misses", format_percent(kMaxFragmentation, 0),
      format_percent(saving), format_percent(kMinSaving, 0));
}

}  // namespace triptych
