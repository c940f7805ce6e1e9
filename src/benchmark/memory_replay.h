// Replays an allocation trace with one allocator, in a process of its own so that the numbers are its alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocation_trace.h"
#include "report/json_text.h"

namespace triptych {

/// "malloc", "malloc+huge" (2 MiB aligned and advised from 2 MiB on), "malloc+tunable"
/// (glibc.malloc.hugetlb=1, which replay_apart sets), "jemalloc", "mimalloc", "pool".
const std::vector<std::string>& replay_allocators();

struct ReplayResult {
  std::string allocator;
  std::string version;            // of the library, where it says
  std::string problem;            // why there are no numbers; empty: there are
  std::size_t used_bytes = 0;     // at the peak of the trace, as asked for
  std::size_t at_peak_bytes = 0;  // resident at that moment
  std::size_t peak_bytes = 0;     // the most that was resident
  std::size_t end_bytes = 0;      // still resident when all is released
  double ns_per_call = 0;         // without touching the memory; median of rounds
  double total_ms = 0;            // of one round that writes to every page of every block
  std::size_t n_calls = 0;

  /// (reserved - used) / reserved at the peak.
  double fragmentation() const noexcept;
};

/// In this process.
ReplayResult replay_here(std::span<const AllocationEvent> events, const std::string& allocator);
/// The arguments, its name first, with which this program calls replay_here on a trace's file and prints the
/// result of to_json on stdout.
using ReplayCommand =
    std::function<std::vector<std::string>(const std::string& trace_file, const std::string& allocator)>;
/// In a new process of this program that reads the trace from a temporary file; jemalloc and mimalloc take
/// malloc's place there (LD_PRELOAD).
ReplayResult replay_apart(std::span<const AllocationEvent> events, const std::string& allocator,
                          const ReplayCommand& command);

JsonOut to_json(const ReplayResult& result);
ReplayResult replay_result_of(const nlohmann::json& json);

}  // namespace triptych
