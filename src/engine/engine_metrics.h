// An engine's values for whoever watches it. Names, units and buckets are vLLM's behind this project's prefix
// ("triptych_" for "vllm:", which `promtool check metrics` does not like), so that dashboards move by search
// and replace; stages of pictures are named as proposed there (its pull request 50875), and the tower's time
// likewise.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "engine/request.h"
#include "engine/step_stats.h"

namespace triptych {

inline constexpr std::string_view kMetricPrefix = "triptych_";

class EngineMetrics {
 public:
  /// Makes all values, so that they are shown as 0 before the first request.
  explicit EngineMetrics(Metrics& metrics);

  /// Tokens that were looked for and found.
  void prefix_cache(std::int64_t n_queries, std::int64_t n_hits);
  void vision_cache(std::int64_t n_queries, std::int64_t n_hits, double saved_ms);
  void preempted();
  /// A token of an answer; no gap: the first, whose time `timings` has.
  void token(const GenerationTimings& timings, std::optional<double> gap_ms);
  void ended(const GenerationResult& result);
  void stepped(const StepStats& step);

 private:
  Counter& prompt_tokens_;
  Counter& generation_tokens_;
  Counter& cached_tokens_;
  Counter& preemptions_;
  Counter& prefix_queries_;
  Counter& prefix_hits_;
  Counter& vision_queries_;
  Counter& vision_hits_;
  Counter& vision_saved_s_;
  std::vector<Counter*> ends_;  // by FinishReason
  Gauge& running_;
  Gauge& waiting_;
  Gauge& kv_usage_;
  Gauge& vision_bytes_;
  Histogram& first_token_s_;
  Histogram& inter_token_s_;
  Histogram& token_mean_s_;
  Histogram& total_s_;
  Histogram& queue_s_;
  Histogram& inference_s_;
  Histogram& prefill_s_;
  Histogram& decode_s_;
  Histogram& request_prompt_tokens_;
  Histogram& request_generation_tokens_;
  Histogram& step_tokens_;
  Histogram& image_decode_s_;
  Histogram& preprocess_s_;
  Histogram& encode_s_;
  Histogram& detokenize_s_;
};

}  // namespace triptych
