#include "engine/engine_monitor.h"

#include "engine/engine_metrics.h"
#include "engine/sequence.h"

namespace triptych {

EngineMonitor::EngineMonitor(Metrics* metrics) {
  if (metrics != nullptr) metrics_ = std::make_unique<EngineMetrics>(*metrics);
}
EngineMonitor::~EngineMonitor() = default;

void EngineMonitor::started(Sequence& s, bool has_prefix_cache) {
  const bool is_new = s.times.started(s.result.timings);
  if (!has_prefix_cache || !is_new) return;
  totals_.n_prefix_queries += s.n_prompt;
  totals_.n_prefix_hits += s.result.n_reused_tokens;
  if (metrics_) metrics_->prefix_cache(s.n_prompt, s.result.n_reused_tokens);
}

void EngineMonitor::preempted() noexcept {
  ++totals_.n_preemptions;
  if (metrics_) metrics_->preempted();
}

void EngineMonitor::looked_for_media(std::int64_t n_media, std::int64_t n_found, std::int64_t n_found_rows) {
  const double saved_ms = n_encoded_rows_ > 0 ? encode_ms_ / static_cast<double>(n_encoded_rows_) *
                                                    static_cast<double>(n_found_rows)
                                              : 0.0;
  totals_.n_vision_queries += n_media;
  totals_.n_vision_hits += n_found;
  totals_.vision_saved_ms += saved_ms;
  if (metrics_) metrics_->vision_cache(n_media, n_found, saved_ms);
}

void EngineMonitor::encoded(std::int64_t n_media, std::int64_t n_rows, const RowCount& patches, double ms) {
  totals_.n_media_encoded += n_media;
  step_.n_media_encoded += n_media;
  step_.n_patches += patches.n_rows;
  step_.n_padded_patches += patches.n_padded;
  encode_ms_ += ms;
  n_encoded_rows_ += n_rows;
}

void EngineMonitor::forwarded(std::int64_t n_sequences, std::int64_t n_prompt_rows, const RowCount& rows) {
  step_.n_sequences += n_sequences;
  step_.n_prompt_rows += n_prompt_rows;
  step_.n_padded_rows += rows.n_padded;
  step_.n_decode_rows += rows.n_rows - rows.n_padded - n_prompt_rows;
}

void EngineMonitor::token(Sequence& s) {
  const std::optional<double> gap_ms = s.times.token(s.result.timings);
  if (metrics_) metrics_->token(s.result.timings, gap_ms);
}

void EngineMonitor::ended(Sequence& s) {
  s.times.ended(s.result.timings);
  if (metrics_) metrics_->ended(s.result);
}

void EngineMonitor::end_step(const State& now) {
  step_.n_running = now.n_running;
  step_.n_waiting = now.n_waiting;
  step_.n_used_blocks = now.n_used_blocks;
  step_.n_blocks = now.n_blocks;
  step_.vision_cache_bytes = now.vision_cache_bytes;
  if (metrics_) metrics_->stepped(step_);
}

}  // namespace triptych
