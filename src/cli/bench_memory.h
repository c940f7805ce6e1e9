// triptych bench --memory: an engine's allocations, recorded from real work and replayed with several
// allocators.
#pragma once

#include <optional>
#include <string>

#include "benchmark/memory_workload.h"

namespace CLI {
class App;
}

namespace triptych::cli {

/// Flags of bench, and what they ask for.
struct MemoryFlags {
  bool memory = false;
  std::string trace_file;                  // to replay instead of recording
  std::optional<std::string> write_trace;  // to keep the record
  std::string replay_file;                 // a child's part
  std::string allocator;
  MemoryWorkload workload;

  void add_to(CLI::App& app);
  bool wanted() const noexcept { return memory || !replay_file.empty(); }
};
/// `shape` may be empty: qwen2-vl-2b. Returns the exit code.
int bench_memory(const MemoryFlags& flags, const std::string& shape, const LoadOptions& load, bool json);

}  // namespace triptych::cli
