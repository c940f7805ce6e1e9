// An engine's allocations, recorded from real work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/allocation_trace.h"
#include "base/json.h"
#include "engine/load.h"

namespace triptych {

struct MemoryWorkload {
  int n_requests = 200;
  int max_sequences = 8;  // at once
  std::uint64_t seed = 1;
};

struct RecordedWork {
  std::vector<AllocationEvent> events;
  double pool_allocations_per_step = 0;  // of a warm decode step
  double arena_allocations_per_step = 0;
  std::size_t pool_used_bytes = 0;  // at the end of the work, weights included
  std::size_t pool_reserved_bytes = 0;
};

/// Answers requests with pictures of 224 to 512 pixels a side (as JPEG files, decoded), questions and answers
/// of mixed lengths, some at the same time, and records what is allocated once the engine exists. Pages of
/// keys and values are noted `kv_scale` times as large.
RecordedWork record_work(LoadedModel& model, const MemoryWorkload& workload, int kv_scale);

/// The configuration of a published shape with as few layers as its family runs with: activations of one
/// layer are released before the next, so that depth changes keys and values only. Sets kv_scale to their
/// ratio.
Json shallow_config(const std::string& shape, int& kv_scale);

/// How the engine works: arenas, and in them tensors that no allocator sees.
std::vector<AllocationEvent> with_arenas(const std::vector<AllocationEvent>& events);
/// How it would without: each tensor by itself.
std::vector<AllocationEvent> without_arenas(const std::vector<AllocationEvent>& events);

}  // namespace triptych
