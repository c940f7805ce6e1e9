// Drives an engine with the requests of a trace, in one process and without sockets: in a closed loop (so
// many clients, each asks again when it has its answer) or at the times of the trace. What a server does
// besides is done here too, beside the steps: pictures are decoded and prepared on threads of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/profile.h"
#include "benchmark/serve_trace.h"
#include "engine/engine.h"
#include "engine/load.h"

namespace triptych {

struct ServeOptions {
  int n_clients = 0;  // of a closed loop; 0: requests come when the trace says
  /// max_context_tokens and kv_cache_tokens 0: what the longest request needs, and that for max_sequences.
  EngineOptions engine = {};
  int n_prepare_threads = 1;  // 0: requests are prepared between steps
  /// Prepared requests that wait for the engine, at most: their pixels take memory. More wait unprepared.
  int max_prepared = 64;
  MediaOptions media = {};
  std::filesystem::path folder = {};  // that files of pictures are relative to
  bool timeline = false;              // also record which thread was busy when
  std::function<void(std::size_t n_done)> on_progress = {};
};

/// What became of a request. Times count from its arrival.
struct ServedRequest {
  double arrival_ms = 0;  // since the begin of the run
  /// Its queue_ms is all its waiting: to be prepared, to be submitted, and to be admitted.
  GenerationTimings timings;
  std::vector<float> gaps_ms;  // between its tokens
  std::int64_t n_prompt_tokens = 0, n_image_tokens = 0, n_reused_tokens = 0, n_answer_tokens = 0;
  std::optional<RequestError> error;
};

struct ServedStep {
  double start_ms = 0;  // since the begin of the run
  double ms = 0;
  StepStats stats;
};

struct ServeRun {
  std::vector<ServedRequest> requests;  // as in the trace
  std::vector<ServedStep> steps;
  EngineTotals totals;
  std::vector<ProfileBusy> busy;  // with ServeOptions::timeline, from the begin of the run
  double wall_ms = 0;             // from the first arrival to the last end
  double cpu_ms = 0;              // of all threads of the process meanwhile
  int n_threads = 1;              // of the backend
  std::int64_t max_context_tokens = 0;
  std::size_t kv_cache_bytes = 0;  // of all blocks
  std::size_t peak_memory_bytes = 0;
};

/// Answers all requests; answers are greedy and have exactly the tokens that the trace says. A request that
/// fails is counted and does not end the run. Throws Error(kInvalidArgument) for options out of range and for
/// a trace that this model cannot take, naming the request; kNotFound, kInvalidFile for files of pictures.
ServeRun run_serve(LoadedModel& model, const std::vector<TraceRequest>& trace, const ServeOptions& options);

}  // namespace triptych
