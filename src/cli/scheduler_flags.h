// Flags of runs that answer several requests at once.
#pragma once

#include <cstdint>

namespace CLI {
class App;
}
namespace triptych {
struct EngineOptions;
}
namespace triptych::api {
struct EngineOptions;
}

namespace triptych::cli {

/// --max-num-batched-tokens, --max-num-batched-patches, --max-step-ms, --memory-limit.
struct SchedulerFlags {
  std::int64_t max_batch_tokens = 1024;
  std::int64_t max_batch_patches = 16384;
  double max_step_ms = 0;
  double memory_limit_gib = 0;

  void add_to(CLI::App& app, const char* group);
  void fill(EngineOptions& options) const;
  void fill(api::EngineOptions& options) const;
};

}  // namespace triptych::cli
