// What a decode step costs beside its kernels: shape checks, arena, locks, work cut and handed to threads.
// Measured with a model of the same operations whose matrices are so narrow that computing takes next to
// nothing.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "benchmark/bench.h"
#include "engine/load.h"
#include "report/json_text.h"

namespace triptych {

/// `config` with widths of a few elements: as many layers, heads and operations. Nothing for families that
/// cannot be narrowed so (a text_config of a plain decoder is needed).
std::optional<Json> narrow_config(const Json& config);

struct DispatchCost {
  double step_us = 0;          // a decode step of the narrow model, its small products included
  double eager_us = 0;         // the same when no step is replayed; 0: step_us is that
  double region_us = 0;        // to start a parallel loop on all threads and end it; 0 with one thread
  std::int64_t n_regions = 0;  // parallel loops of a step of the wide model
  double total_us() const noexcept { return step_us + region_us * static_cast<double>(n_regions); }
};

/// Median over many steps; nothing where narrow_config gives nothing. `wide` is the model of `config`: its
/// loops are counted.
std::optional<DispatchCost> measure_dispatch(LoadedModel& wide, const Json& config, const LoadOptions& load,
                                             bool replay_steps = true);

/// As a line and as JSON, with the share of the report's decode step.
std::string dispatch_text(const DispatchCost& cost, const BenchReport& report);
JsonOut dispatch_json(const DispatchCost& cost, const BenchReport& report);

}  // namespace triptych
