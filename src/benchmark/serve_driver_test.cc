// The driver on a small model: every request is answered once with its tokens, in both loops; what is
// counted; requests and traces that cannot be.
#include "benchmark/serve_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/metrics_registry.h"
#include "benchmark/serve_report.h"
#include "benchmark/serve_requests.h"
#include "benchmark/testing/small_llava.h"

namespace triptych {
namespace {

using testing::HasSubstr;

class ServeDriver : public testing::Test {
 protected:
  static LoadedModel& model() {
    static const auto loaded =
        LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 2});
    return *loaded;
  }
  static std::vector<TraceRequest> small_trace(int n_requests) {
    TraceMix mix;
    mix.n_requests = n_requests;
    mix.sides_px = {56, 84};
    mix.prompt_tokens = {3, 40};
    mix.answer_tokens = {1, 9};
    mix.text_share = 0.2;
    return make_trace(mix);
  }
  static void expect_all_answered(const std::vector<TraceRequest>& trace, const ServeRun& run) {
    ASSERT_EQ(run.requests.size(), trace.size());
    for (std::size_t i = 0; i < trace.size(); ++i) {
      const ServedRequest& served = run.requests[i];
      EXPECT_FALSE(served.error) << i;
      EXPECT_EQ(served.n_answer_tokens, trace[i].answer_tokens) << i;
      EXPECT_EQ(served.gaps_ms.size() + 1, static_cast<std::size_t>(trace[i].answer_tokens)) << i;
      EXPECT_EQ(served.n_image_tokens, 16 * static_cast<std::int64_t>(trace[i].pictures.size()));
      EXPECT_EQ(served.n_prompt_tokens, trace[i].prompt_tokens + served.n_image_tokens);
      const GenerationTimings& t = served.timings;
      EXPECT_GT(t.first_token_ms, 0) << i;
      EXPECT_GE(t.total_ms, t.first_token_ms) << i;
      EXPECT_GE(t.queue_ms, 0) << i;
      EXPECT_LE(t.queue_ms + t.image_decode_ms + t.preprocess_ms + t.encode_ms, t.first_token_ms + 1e-6) << i;
      EXPECT_EQ(t.image_decode_ms > 0, !trace[i].pictures.empty()) << i;
      EXPECT_EQ(t.encode_ms > 0, !trace[i].pictures.empty()) << i;
    }
  }
};

TEST_F(ServeDriver, ClosedLoopKeepsAtMostSoManyOpen) {
  const auto trace = small_trace(30);
  ServeOptions options;
  options.n_clients = 4;
  options.engine.max_sequences = 4;
  std::size_t n_done = 0;
  options.on_progress = [&](std::size_t n) { EXPECT_EQ(n, ++n_done); };
  const ServeRun run = run_serve(model(), trace, options);
  expect_all_answered(trace, run);
  EXPECT_EQ(n_done, 30U);
  const ServeSummary summary = summarize(run);
  EXPECT_EQ(summary.n_answered, 30U);
  EXPECT_GT(summary.mean_sequences, 1.0);
  EXPECT_LE(summary.most_sequences, 4);
  EXPECT_LE(summary.most_running + summary.most_waiting, 4);
  // A client asks again only when it has its answer.
  for (const ServedRequest& served : run.requests) {
    int n_open = 0;
    for (const ServedRequest& other : run.requests)
      if (other.arrival_ms <= served.arrival_ms &&
          other.arrival_ms + other.timings.total_ms > served.arrival_ms + 0.5)
        ++n_open;
    EXPECT_LE(n_open, 4);
  }
}

TEST_F(ServeDriver, OneAfterAnotherNeverShares) {
  const auto trace = small_trace(6);
  ServeOptions options;
  options.n_clients = 1;
  options.n_prepare_threads = 0;
  const ServeRun run = run_serve(model(), trace, options);
  expect_all_answered(trace, run);
  EXPECT_EQ(summarize(run).most_sequences, 1);
  for (std::size_t i = 1; i < run.requests.size(); ++i)
    EXPECT_GE(run.requests[i].arrival_ms,
              run.requests[i - 1].arrival_ms + run.requests[i - 1].timings.total_ms - 0.5);
}

TEST_F(ServeDriver, OpenLoopFollowsTheTimesOfTheTrace) {
  auto trace = small_trace(12);
  for (std::size_t i = 0; i < trace.size(); ++i) trace[i].arrival_ms = 10.0 * static_cast<double>(11 - i);
  ServeOptions options;
  options.max_prepared = 1;
  options.engine.max_sequences = 2;
  const ServeRun run = run_serve(model(), trace, options);
  expect_all_answered(trace, run);
  for (std::size_t i = 0; i < trace.size(); ++i)
    EXPECT_NEAR(run.requests[i].arrival_ms, trace[i].arrival_ms, 1e-3);
  EXPECT_GE(run.wall_ms, 110);
}

// Counted where batches are made, so that padding would show.
TEST_F(ServeDriver, CountsRowsPatchesAndBlocks) {
  const auto trace = small_trace(16);
  ServeOptions options;
  options.n_clients = 8;
  options.engine.max_sequences = 8;
  options.engine.max_batch_tokens = 24;
  const ServeRun run = run_serve(model(), trace, options);
  const ServeSummary s = summarize(run);
  std::int64_t n_pictures = 0, n_rows = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    n_pictures += static_cast<std::int64_t>(trace[i].pictures.size());
    n_rows += run.requests[i].n_prompt_tokens + trace[i].answer_tokens - 1;  // the last is never fed
  }
  EXPECT_EQ(s.n_rows, n_rows);
  EXPECT_EQ(s.n_padded_rows, 0);
  EXPECT_EQ(s.n_patches, 16 * n_pictures);
  EXPECT_EQ(s.n_padded_patches, 0);
  EXPECT_EQ(run.totals.n_media_encoded, n_pictures);
  EXPECT_LE(s.most_rows, 24 + 8);
  EXPECT_GT(s.most_used_blocks, 1);
  EXPECT_LE(s.most_used_blocks, s.n_blocks);
  EXPECT_GT(s.mean_used_blocks, 0);
  EXPECT_EQ(s.n_blocks, 8 * blocks_for(run.max_context_tokens + 1));
  EXPECT_EQ(run.steps.back().stats.n_used_blocks, 0) << "all blocks come back";
}

TEST_F(ServeDriver, CachesAreSeen) {
  std::vector<TraceRequest> trace(6);
  for (TraceRequest& request : trace) {
    request.pictures = {{.width_px = 56, .height_px = 56, .group = 1}};
    request.prompt_tokens = 80;
    request.prefix_group = 1;
    request.prefix_tokens = 70;
    request.answer_tokens = 2;
  }
  ServeOptions options;
  options.n_clients = 1;
  options.engine.vision_embedding_cache_bytes = 1 << 20;
  options.engine.prefix_cache_bytes = std::size_t{64} << 20;
  const ServeRun run = run_serve(model(), trace, options);
  EXPECT_EQ(run.totals.n_media_encoded, 1);
  EXPECT_EQ(run.requests[0].n_reused_tokens, 0);
  EXPECT_EQ(run.requests[1].n_reused_tokens, 70 + 16) << "the prefix and the picture behind it";
  EXPECT_EQ(run.totals.n_prefix_queries, 6 * (80 + 16));
  EXPECT_EQ(run.totals.n_prefix_hits, 5 * (70 + 16));
  // Without the prefix cache the pictures themselves are found.
  options.engine.prefix_cache_bytes = 0;
  const ServeRun visual = run_serve(model(), trace, options);
  EXPECT_EQ(visual.totals.n_vision_queries, 6);
  EXPECT_EQ(visual.totals.n_vision_hits, 5);
  EXPECT_GT(visual.totals.vision_saved_ms, 0);
  EXPECT_EQ(visual.totals.n_prefix_queries, 0);
}

TEST_F(ServeDriver, PreemptionsAreCountedAndChangeNoAnswer) {
  std::vector<TraceRequest> trace(4);
  for (TraceRequest& request : trace) {
    request.prompt_tokens = 60;
    request.answer_tokens = 80;
  }
  ServeOptions options;
  options.engine.max_sequences = 4;
  options.engine.max_context_tokens = 150;
  options.engine.kv_cache_tokens = 320;
  const ServeRun run = run_serve(model(), trace, options);
  EXPECT_GT(run.totals.n_preemptions, 0);
  for (const ServedRequest& served : run.requests) EXPECT_EQ(served.n_answer_tokens, 80);
}

TEST_F(ServeDriver, ARequestThatDoesNotFitFailsAlone) {
  auto trace = small_trace(5);
  trace[2].prompt_tokens = 200;
  ServeOptions options;
  options.n_clients = 1;
  options.engine.max_context_tokens = 100;
  const ServeRun run = run_serve(model(), trace, options);
  ASSERT_TRUE(run.requests[2].error);
  EXPECT_EQ(run.requests[2].error->code, ErrorCode::kContextLength);
  const ServeSummary summary = summarize(run);
  EXPECT_EQ(summary.n_answered, 4U);
  EXPECT_EQ(summary.n_failed, 1U);
  EXPECT_THAT(summary.first_error, HasSubstr("100"));
  // All of them, so that nothing is left to step.
  options.engine.max_context_tokens = 2;
  EXPECT_EQ(summarize(run_serve(model(), trace, options)).n_failed, 5U);
}

TEST_F(ServeDriver, TracesThatTheModelCannotTake) {
  const auto refusal_of = [](const std::vector<TraceRequest>& trace,
                             const ServeOptions& options) -> std::string {
    try {
      run_serve(model(), trace, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  std::vector<TraceRequest> trace(2);
  trace[0].prompt_tokens = 4;
  trace[1].prompt = "What is it?";
  EXPECT_THAT(refusal_of(trace, {}), HasSubstr("request 2 of the trace")) << "there is no tokenizer";
  trace[1].prompt.clear();
  trace[1].prompt_tokens = 4;
  trace[1].pictures = {{.width_px = 0, .height_px = 0, .group = 0, .file = "nowhere.png"}};
  EXPECT_THAT(refusal_of(trace, {}), testing::AllOf(HasSubstr("request 2"), HasSubstr("nowhere.png")));
  trace[1].pictures.clear();
  EXPECT_EQ(refusal_of({}, {}), "the trace holds no request");
  ServeOptions options;
  options.n_prepare_threads = -1;
  EXPECT_THAT(refusal_of(trace, options), HasSubstr("out of range"));
}

// Requests are the same each time, pictures of a group too, and differ from others'.
TEST_F(ServeDriver, RequestsAreMadeUpDeterministically) {
  std::vector<TraceRequest> trace(3);
  for (TraceRequest& request : trace) {
    request.pictures = {{.width_px = 60, .height_px = 84, .group = 1}};
    request.prompt_tokens = 20;
    request.prefix_tokens = 8;
  }
  trace[2].pictures[0].group = 2;
  const MediaOptions media;
  const ServeRequests requests(model(), trace, media, {});
  EXPECT_EQ(requests.max_context_tokens(), 16 + 20 + 1);
  const PreparedRequest first = requests.prepare(0);
  EXPECT_EQ(first.token_ids, requests.prepare(0).token_ids);
  EXPECT_EQ(first.token_ids[8], model().info().image_token_id);
  const PreparedRequest second = requests.prepare(1);
  const PreparedRequest third = requests.prepare(2);
  EXPECT_TRUE(std::equal(first.token_ids.begin(), first.token_ids.begin() + 9, second.token_ids.begin()));
  EXPECT_NE(first.token_ids, second.token_ids);
  EXPECT_EQ(first.media[0].fingerprint, second.media[0].fingerprint);
  EXPECT_NE(first.media[0].fingerprint, third.media[0].fingerprint);
}

TEST_F(ServeDriver, ReportHasEveryNumber) {
  ServeReport report;
  report.model = "m\n";
  report.weights = "auto";
  report.load = "2 clients in a closed loop";
  report.options.n_clients = 2;
  report.run = run_serve(model(), small_trace(4), report.options);
  const JsonOut json = serve_json(report);
  EXPECT_EQ(json["requests"]["answered"], 4);
  EXPECT_EQ(json["padding"]["padded_rows"], 0);
  for (const char* key : {"first_token_ms", "inter_token_ms", "end_to_end_ms", "queue_ms", "image_decode_ms",
                          "preprocess_ms", "encode_ms", "prefill_ms", "decode_ms", "detokenize_ms"})
    EXPECT_LE(json["latencies"][key]["p50"], json["latencies"][key]["p99"]) << key;
  EXPECT_GT(json["series"].size(), 1U);
  const std::string text = serve_text(report);
  for (const char* part : {"4 answered, 0 failed", "0 of ", "first token", "between tokens", "tower",
                           "preemptions", "2 clients in a closed loop"})
    EXPECT_THAT(text, HasSubstr(part));
}

// What an engine shows of itself is what the driver sees from outside.
TEST_F(ServeDriver, MetricsAgreeWithTheRun) {
  MetricsRegistry metrics;
  const auto trace = small_trace(10);
  ServeOptions options;
  options.n_clients = 3;
  options.engine.metrics = &metrics;
  options.engine.vision_embedding_cache_bytes = 1 << 20;
  const ServeRun run = run_serve(model(), trace, options);
  const ServeSummary s = summarize(run);
  std::map<std::string, MetricFamily> families;
  for (MetricFamily& family : metrics.snapshot()) families[family.name] = family;
  const auto sample = [&](const std::string& name) { return families.at("triptych_" + name).samples.at(0); };
  const auto is = [](std::int64_t n) { return static_cast<double>(n); };
  EXPECT_EQ(sample("prompt_tokens_total").value, is(s.n_prompt_tokens));
  EXPECT_EQ(sample("generation_tokens_total").value, is(s.n_answer_tokens));
  EXPECT_EQ(sample("iteration_tokens").value, is(s.n_rows));
  EXPECT_EQ(sample("time_to_first_token_seconds").count, 10U);
  EXPECT_EQ(sample("e2e_request_latency_seconds").count, 10U);
  std::size_t n_gaps = 0, n_with_pictures = 0;
  double sum_s = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    n_gaps += run.requests[i].gaps_ms.size();
    n_with_pictures += trace[i].pictures.empty() ? 0 : 1;
    sum_s += run.requests[i].timings.total_ms / 1e3;
  }
  EXPECT_EQ(sample("inter_token_latency_seconds").count, n_gaps);
  EXPECT_NEAR(sample("e2e_request_latency_seconds").value, sum_s, 1e-9);
  EXPECT_EQ(sample("mm_encoder_latency_seconds").count, n_with_pictures);
  EXPECT_EQ(sample("mm_cache_queries_total").value, is(run.totals.n_vision_queries));
  EXPECT_GT(sample("mm_cache_bytes").value, 0);
  EXPECT_EQ(sample("num_requests_running").value, 0);
  EXPECT_EQ(sample("num_preemptions_total").value, 0);
  double n_ends = 0;
  for (const MetricSample& one : families.at("triptych_request_success_total").samples) n_ends += one.value;
  EXPECT_EQ(n_ends, 10);
}

}  // namespace
}  // namespace triptych
