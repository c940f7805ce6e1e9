#include "engine/engine_metrics.h"

#include <string>
#include <utility>

namespace triptych {
namespace {

// vLLM's, in seconds and tokens.
const std::vector<double> kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                               1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kInterTokenBounds = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                               .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kRequestBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kTokenBounds = {1,   2,    5,    10,   20,    50,    100,   200,
                                          500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const std::vector<double> kStepBounds = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
// Pictures take milliseconds here, where a request takes seconds.
const std::vector<double> kStageBounds = {.0005, .001, .0025, .005, .01, .025, .05, .1,
                                          .25,   .5,   1,     2.5,  5,   10,   30};

MetricId id_of(std::string_view name, std::string help) {
  return {std::string(kMetricPrefix) + std::string(name), std::move(help)};
}

}  // namespace

EngineMetrics::EngineMetrics(Metrics& m)
    : prompt_tokens_(m.counter(id_of("prompt_tokens_total", "Tokens of prompts of ended requests."))),
      generation_tokens_(m.counter(id_of("generation_tokens_total", "Tokens of answers."))),
      cached_tokens_(m.counter(
          id_of("prompt_tokens_cached_total", "Tokens of prompts that were found in the prefix cache."))),
      preemptions_(m.counter(id_of("num_preemptions_total",
                                   "Requests that gave back their cache blocks and were computed again."))),
      prefix_queries_(
          m.counter(id_of("prefix_cache_queries_total", "Tokens that were looked for in the prefix cache."))),
      prefix_hits_(
          m.counter(id_of("prefix_cache_hits_total", "Tokens that were found in the prefix cache."))),
      vision_queries_(m.counter(
          id_of("mm_cache_queries_total", "Pictures and videos that were looked for in the visual cache."))),
      vision_hits_(m.counter(
          id_of("mm_cache_hits_total", "Pictures and videos that were found in the visual cache."))),
      vision_saved_s_(m.counter(id_of("mm_cache_saved_seconds_total",
                                      "Tower time that the visual cache saved, estimated by rows."))),
      running_(m.gauge(id_of("num_requests_running", "Requests that take part in steps."))),
      waiting_(m.gauge(id_of("num_requests_waiting", "Requests that wait for a place or for cache blocks."))),
      kv_usage_(m.gauge(id_of("kv_cache_usage_perc", "Share of the cache blocks in use; 1 is all of them."))),
      vision_bytes_(m.gauge(id_of("mm_cache_bytes", "Bytes that the visual cache holds in memory."))),
      first_token_s_(m.histogram(
          id_of("time_to_first_token_seconds", "Time from a request's arrival to its first token."),
          kFirstTokenBounds)),
      inter_token_s_(m.histogram(
          id_of("inter_token_latency_seconds", "Time from a token to the next of the same answer."),
          kInterTokenBounds)),
      token_mean_s_(m.histogram(id_of("request_time_per_output_token_seconds",
                                      "Mean time between the tokens of a request's answer."),
                                kInterTokenBounds)),
      total_s_(m.histogram(id_of("e2e_request_latency_seconds", "Time from a request's arrival to its end."),
                           kRequestBounds)),
      queue_s_(m.histogram(id_of("request_queue_time_seconds", "Time that a request waited to be admitted."),
                           kRequestBounds)),
      inference_s_(m.histogram(
          id_of("request_inference_time_seconds", "Time of the tower and of the steps of a request."),
          kRequestBounds)),
      prefill_s_(m.histogram(
          id_of("request_prefill_time_seconds", "Time of the steps that computed a request's prompt."),
          kRequestBounds)),
      decode_s_(m.histogram(
          id_of("request_decode_time_seconds", "Time of the steps that computed a request's answer."),
          kRequestBounds)),
      request_prompt_tokens_(
          m.histogram(id_of("request_prompt_tokens", "Tokens of a request's prompt."), kTokenBounds)),
      request_generation_tokens_(
          m.histogram(id_of("request_generation_tokens", "Tokens of a request's answer."), kTokenBounds)),
      step_tokens_(
          m.histogram(id_of("iteration_tokens", "Tokens of a step, prompts and answers."), kStepBounds)),
      image_decode_s_(m.histogram(
          id_of("mm_media_decode_latency_seconds", "Time to read and decode a request's pictures."),
          kStageBounds)),
      preprocess_s_(m.histogram(id_of("mm_preprocessing_total_latency_seconds",
                                      "Time to resize and normalise a request's pictures."),
                                kStageBounds)),
      encode_s_(m.histogram(id_of("mm_encoder_latency_seconds",
                                  "Time of tower and projector, or of the visual cache, for a request."),
                            kStageBounds)),
      detokenize_s_(
          m.histogram(id_of("request_detokenize_time_seconds", "Time to make text of an answer's tokens."),
                      kStageBounds)) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                                    FinishReason::kTimeout, FinishReason::kError}) {
    MetricId id = id_of("request_success_total", "Requests that ended, by the reason.");
    id.labels = {{"finished_reason", std::string(to_string(reason))}};
    ends_.push_back(&m.counter(id));
  }
}

void EngineMetrics::prefix_cache(std::int64_t n_queries, std::int64_t n_hits) {
  prefix_queries_.add(static_cast<double>(n_queries));
  prefix_hits_.add(static_cast<double>(n_hits));
}

void EngineMetrics::vision_cache(std::int64_t n_queries, std::int64_t n_hits, double saved_ms) {
  vision_queries_.add(static_cast<double>(n_queries));
  vision_hits_.add(static_cast<double>(n_hits));
  vision_saved_s_.add(saved_ms / 1e3);
}

void EngineMetrics::preempted() { preemptions_.add(1); }

void EngineMetrics::token(const GenerationTimings& timings, std::optional<double> gap_ms) {
  generation_tokens_.add(1);
  if (gap_ms) {
    inter_token_s_.observe(*gap_ms / 1e3);
  } else {
    first_token_s_.observe(timings.first_token_ms / 1e3);
  }
}

void EngineMetrics::ended(const GenerationResult& result) {
  const GenerationTimings& t = result.timings;
  ends_[static_cast<std::size_t>(result.finish_reason)]->add(1);
  prompt_tokens_.add(static_cast<double>(result.n_prompt_tokens));
  cached_tokens_.add(static_cast<double>(result.n_reused_tokens));
  total_s_.observe(t.total_ms / 1e3);
  queue_s_.observe(t.queue_ms / 1e3);
  inference_s_.observe((t.encode_ms + t.prefill_ms + t.decode_ms) / 1e3);
  prefill_s_.observe(t.prefill_ms / 1e3);
  decode_s_.observe(t.decode_ms / 1e3);
  if (result.token_ids.size() > 1) token_mean_s_.observe(t.inter_token_ms / 1e3);
  request_prompt_tokens_.observe(static_cast<double>(result.n_prompt_tokens));
  request_generation_tokens_.observe(static_cast<double>(result.token_ids.size()));
  detokenize_s_.observe(t.detokenize_ms / 1e3);
  if (result.n_image_tokens == 0) return;
  image_decode_s_.observe(t.image_decode_ms / 1e3);
  preprocess_s_.observe(t.preprocess_ms / 1e3);
  encode_s_.observe(t.encode_ms / 1e3);
}

void EngineMetrics::stepped(const StepStats& step) {
  running_.set(static_cast<double>(step.n_running));
  waiting_.set(static_cast<double>(step.n_waiting));
  kv_usage_.set(static_cast<double>(step.n_used_blocks) / static_cast<double>(step.n_blocks));
  vision_bytes_.set(static_cast<double>(step.vision_cache_bytes));
  if (step.n_prompt_rows + step.n_decode_rows > 0)
    step_tokens_.observe(static_cast<double>(step.n_prompt_rows + step.n_decode_rows));
}

}  // namespace triptych
