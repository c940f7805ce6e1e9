// Times of requests, counts of steps and metrics, on the model that ships and on counts alone.
#include "engine/engine_monitor.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/metrics_registry.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

class EngineMonitorTest : public testing::Test {
 protected:
  static LoadedModel& model() {
    static const auto loaded =
        LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 1});
    return *loaded;
  }
  static PreparedRequest question(const std::string& scene) {
    const std::string file = test::source_path("assets/eval/scenes/" + scene);
    ChatRequest chat;
    ChatMessage message;
    message.role = "user";
    message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, "Describe the image."}};
    chat.messages.push_back(std::move(message));
    chat.media.push_back(
        {.frames = {decode_image(MappedFile::open(file)->bytes(), {}, file)}, .decode_ms = 3.5});
    return model().prepare(chat);
  }
};

TEST_F(EngineMonitorTest, TimesOfARequestAddUp) {
  Engine engine(model(), {.max_context_tokens = 256, .max_sequences = 1});
  SamplingParams params;
  params.max_tokens = 6;
  params.ignore_eos = true;
  const RequestId first = engine.submit(question("0000.png"), params);
  const RequestId second = engine.submit(question("0001.png"), params);
  while (engine.has_work()) engine.step();
  const GenerationTimings a = engine.take_result(first)->timings;
  const GenerationTimings b = engine.take_result(second)->timings;
  for (const GenerationTimings& t : {a, b}) {
    EXPECT_EQ(t.image_decode_ms, 3.5) << "as the picture says";
    EXPECT_GT(t.preprocess_ms, 0);
    EXPECT_GT(t.encode_ms, 0);
    EXPECT_GT(t.prefill_ms, 0);
    EXPECT_GT(t.decode_ms, 0);
    EXPECT_GT(t.detokenize_ms, 0);
    EXPECT_GT(t.inter_token_ms, 0);
    EXPECT_LE(t.preprocess_ms + t.queue_ms + t.encode_ms + t.prefill_ms, t.first_token_ms);
    EXPECT_LE(t.first_token_ms + 5 * t.inter_token_ms, t.total_ms + 1e-6);
    EXPECT_LE(t.detokenize_ms, t.total_ms);
  }
  EXPECT_GE(b.queue_ms, a.encode_ms + a.prefill_ms + a.decode_ms) << "it waited for the one place";
  EXPECT_LT(a.queue_ms, a.prefill_ms + a.encode_ms);
}

TEST_F(EngineMonitorTest, StepsTellTheirBatch) {
  Engine engine(model(), {.max_context_tokens = 256, .kv_cache_tokens = 1024, .max_sequences = 2});
  SamplingParams params;
  params.max_tokens = 3;
  params.ignore_eos = true;
  std::int64_t n_prompt = 0;
  for (const char* scene : {"0000.png", "0001.png", "0002.png"}) {
    PreparedRequest request = question(scene);
    n_prompt += static_cast<std::int64_t>(request.layout.input_ids.size());
    engine.submit(std::move(request), params);
  }
  const std::int64_t n_one = n_prompt / 3;
  engine.step();
  StepStats step = engine.last_step();
  EXPECT_EQ(step.n_sequences, 2);
  EXPECT_EQ(step.n_prompt_rows, 2 * n_one);
  EXPECT_EQ(step.n_decode_rows, 0);
  EXPECT_EQ(step.n_media_encoded, 2);
  EXPECT_GT(step.n_patches, 0);
  EXPECT_EQ(step.n_padded_rows, 0);
  EXPECT_EQ(step.n_padded_patches, 0);
  EXPECT_EQ(step.n_running, 2);
  EXPECT_EQ(step.n_waiting, 1);
  EXPECT_EQ(step.n_used_blocks, 2 * blocks_for(n_one));
  EXPECT_EQ(step.n_blocks, 16);
  engine.step();
  step = engine.last_step();
  EXPECT_EQ(step.n_prompt_rows, 0);
  EXPECT_EQ(step.n_decode_rows, 2);
  EXPECT_EQ(step.n_patches, 0);
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.last_step().n_used_blocks, 0);
  EXPECT_EQ(engine.totals().n_media_encoded, 3);
}

TEST_F(EngineMonitorTest, MetricsCountEndsByReason) {
  MetricsRegistry metrics;
  Engine engine(model(), {.max_context_tokens = 256, .kv_cache_tokens = 1024, .metrics = &metrics});
  SamplingParams params;
  params.max_tokens = 2;
  engine.submit(question("0000.png"), params);
  const RequestId gone = engine.submit(question("0001.png"), params);
  engine.submit(question("0002.png"), params, [](const TokenEvent&) -> bool { throw 1; });
  engine.cancel(gone);
  engine.step();
  std::map<std::string, MetricFamily> families;
  for (MetricFamily& family : metrics.snapshot()) families[family.name] = family;
  EXPECT_EQ(families.at("triptych_num_requests_running").samples[0].value, 1);
  while (engine.has_work()) engine.step();
  for (MetricFamily& family : metrics.snapshot()) families[family.name] = family;
  std::map<std::string, double> ends;
  for (const MetricSample& sample : families.at("triptych_request_success_total").samples)
    ends[sample.labels.at(0).second] = sample.value;
  EXPECT_EQ(ends, (std::map<std::string, double>{
                      {"stop", 0}, {"length", 1}, {"cancelled", 1}, {"timeout", 0}, {"error", 1}}));
  EXPECT_EQ(families.at("triptych_time_to_first_token_seconds").samples[0].count, 2U);
  EXPECT_EQ(families.at("triptych_kv_cache_usage_perc").samples[0].value, 0);
  EXPECT_EQ(families.at("triptych_request_queue_time_seconds").samples[0].count, 3U);
  EXPECT_GT(families.at("triptych_mm_preprocessing_total_latency_seconds").samples[0].value, 0);
}

TEST(PatchesOf, PixelsInEveryForm) {
  EXPECT_EQ(patches_of({1035, 1176}, 1176), 1035) << "patches already";
  EXPECT_EQ(patches_of({3, 336, 336}, 3 * 14 * 14), 576);
  EXPECT_EQ(patches_of({3, 384, 384}, 3 * 14 * 14), 729) << "pixels behind the last whole patch are not read";
  EXPECT_EQ(patches_of({5, 3, 28, 42}, 3 * 14 * 14), 30) << "tiles";
  EXPECT_EQ(patches_of({3, 336, 336}, 0), 0) << "no product of pixels was seen";
  EXPECT_EQ(patches_of({7}, 14), 0);
}

}  // namespace
}  // namespace triptych
