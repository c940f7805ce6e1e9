// Sees what an engine does: the times of requests, the counts of steps, and the metrics of a server when some
// are attached. The step loop calls it; it changes nothing of it.
#pragma once

#include <memory>

#include "base/metrics.h"
#include "engine/model_runner.h"
#include "engine/request_times.h"
#include "engine/step_stats.h"

namespace triptych {

class EngineMetrics;
struct Sequence;

class EngineMonitor {
 public:
  /// `metrics` may be null; else it must live as long.
  explicit EngineMonitor(Metrics* metrics);
  ~EngineMonitor();

  const StepStats& last_step() const noexcept { return step_; }
  const EngineTotals& totals() const noexcept { return totals_; }

  void begin_step() noexcept { step_ = {}; }
  /// Its tokens were looked for in the prefix cache, if there is one, and n_computed of them found.
  void started(Sequence& s, bool has_prefix_cache);
  void preempted() noexcept;
  /// Rows of so many media were looked for in the cache; `n_found_rows` are the rows of those found.
  void looked_for_media(std::int64_t n_media, std::int64_t n_found, std::int64_t n_found_rows);
  /// The tower made `n_rows` rows of `n_media` media.
  void encoded(std::int64_t n_media, std::int64_t n_rows, const RowCount& patches, double ms);
  /// A batch went through the language model.
  void forwarded(std::int64_t n_sequences, std::int64_t n_prompt_rows, const RowCount& rows);
  /// The next token of an answer.
  void token(Sequence& s);
  void ended(Sequence& s);
  /// `now` has what is true behind the step; counts of the batch are kept.
  struct State {
    std::int64_t n_running = 0, n_waiting = 0, n_used_blocks = 0, n_blocks = 0;
    std::size_t vision_cache_bytes = 0;
  };
  void end_step(const State& now);

 private:
  StepStats step_;
  EngineTotals totals_;
  double encode_ms_ = 0;  // of the tower so far, and rows it made
  std::int64_t n_encoded_rows_ = 0;
  std::unique_ptr<EngineMetrics> metrics_;
};

}  // namespace triptych
