// Stages, parts and their costs: against what an observer counts when a model really runs.
#include "benchmark/bench.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "benchmark/published_shapes.h"
#include "benchmark/test_jpeg.h"
#include "benchmark/testing/small_llava.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "media/image_decode.h"
#include "report/cost_model.h"

namespace triptych {
namespace {

// Speed and memory of shapes are those of a checkpoint, which holds a tied output layer once.
TEST(RandomWeightsOfShapes, ATiedOutputLayerIsTheEmbedding) {
  const auto language = [](bool is_tied, const LoadOptions& options) {
    Json config = small_llava_config();
    config["text_config"]["tie_word_embeddings"] = is_tied;
    const auto model = LoadedModel::with_random_weights(config, DType::kBF16, options);
    PartSizes sizes = model->model().part_sizes();
    return sizes.part("language");
  };
  constexpr std::int64_t kHead = 320 * 64;
  const auto own = language(false, {.n_threads = 1});
  const auto tied = language(true, {.n_threads = 1});
  EXPECT_EQ(own.n_parameters - tied.n_parameters, kHead);
  EXPECT_EQ(own.owned_bytes - tied.owned_bytes, 2 * kHead);
  EXPECT_EQ(own.read_bytes, tied.read_bytes);  // an answer's token reads the whole layer either way
}

TEST(LanguageCost, AgreesWithWhatIsCountedInARun) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 1});
  const LanguageCost cost(model->model(), KvDType::kF16);
  EXPECT_EQ(cost.kv_bytes_per_token(), 2 * 2 * 4 * 16 * 2);

  PreparedRequest request;
  const std::int64_t n = 20;
  for (std::int32_t i = 0; i < n; ++i) {
    request.layout.input_ids.push_back(i);
    request.layout.positions.push_back(i);
  }
  request.layout.next_position = static_cast<std::int32_t>(n);
  Engine engine(*model, {.max_context_tokens = 64, .max_sequences = 1});
  CostObserver prompt;
  engine.forward_prompt(request, &prompt);  // logits of all rows, attention over the cache is not counted
  const double pairs = 20.0 * 21.0 / 2.0;
  const double head = 2.0 * 320 * 64;
  // forward_prompt computes the last layer for all tokens, a prompt's step what its last token needs.
  const double rest_of_layer = cost.layer_parameters() / 2 - 2 * 64 * 4 * 16;
  const double attention = 4.0 * 2 * 64 * (pairs - (pairs - static_cast<double>(n)) / 2);
  const double expected =
      cost.prefill(n).flops - attention + (head + 2.0 * rest_of_layer) * (static_cast<double>(n) - 1.0);
  // Norm weights are among the parameters; nothing else may differ.
  const double norms = 2.0 * static_cast<double>(n) * (2 * 2 + 1) * 64;
  EXPECT_DOUBLE_EQ(expected - norms, prompt.cost().flops);

  CostObserver next;
  engine.forward_next(1, &next);
  EXPECT_DOUBLE_EQ(cost.decode(21).flops - 4.0 * 2 * 64 * 21 - 2.0 * (2 * 2 + 1) * 64, next.cost().flops);
  EXPECT_DOUBLE_EQ(cost.decode(21).bytes - 21.0 * static_cast<double>(cost.kv_bytes_per_token()),
                   next.cost().bytes);
}

TEST(PublishedShapes, ParseAndTakeLayers) {
  for (const PublishedShape& shape : published_shapes()) {
    EXPECT_TRUE(language_layers(published_config(shape.name)).has_value()) << shape.name;
    EXPECT_EQ(language_layers(published_config(shape.name, 3)), 3) << shape.name;
  }
  EXPECT_THROW(published_config("llava-9b"), Error);
}

TEST(Bench, MeasuresEveryStage) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kBF16, {.n_threads = 1});
  BenchOptions options;
  options.prompt_tokens = 40;
  options.decode_tokens = 4;
  options.n_repeats = 2;
  options.picture_width_px = 120;
  options.picture_height_px = 80;
  const BenchReport report = run_bench(*model, options);
  EXPECT_EQ(report.n_image_tokens, 16);
  std::vector<std::string> names;
  for (const BenchStage& stage : report.stages) {
    names.push_back(stage.name);
    EXPECT_GT(stage.ms, 0.0) << stage.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"image decode", "preprocess", "tower", "projector", "prefill",
                                             "decode"}));
  EXPECT_GT(report.first_token_ms, report.stages[2].ms);
  EXPECT_GT(report.peak_memory_bytes, std::size_t{1} << 20);
  EXPECT_EQ(report.n_question_tokens, 16 + 24);
  EXPECT_GT(report.question_first_token_ms, report.stages[2].ms);
  EXPECT_TRUE(report.parts.empty());
  EXPECT_TRUE(report.timeline.empty());
  // Tower and projector: products of both, and attention of 17 rows in 3 heads of 16, in 2 of 3 layers.
  const double layer = 2.0 * 17 * (4.0 * 48 * 48 + 2.0 * 48 * 96) + 4.0 * 17 * 17 * 48;
  const double patches = 2.0 * 16 * 48 * 3 * 14 * 14;
  const double projector = 2.0 * 16 * (64 * 48 + 64 * 64);
  EXPECT_NEAR(report.stages[2].cost.flops + report.stages[3].cost.flops, 2 * layer + patches + projector,
              2.0 * 16 * 2 * 64);
  options.prompt_tokens = 16;
  EXPECT_THROW(run_bench(*model, options), Error);
}

TEST(LanguageCost, SequencesThatDecodeTogetherReadTheWeightsOnce) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 1});
  const LanguageCost cost(model->model(), KvDType::kF16);
  const Cost one = cost.decode(50);
  const Cost eight = cost.decode(50, 8);
  EXPECT_DOUBLE_EQ(eight.flops, 8 * one.flops);
  EXPECT_DOUBLE_EQ(eight.bytes - one.bytes, 7.0 * 50 * static_cast<double>(cost.kv_bytes_per_token()));
}

TEST(Bench, SequencesThatDecodeTogetherWithoutPictures) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 2});
  BenchOptions options;
  options.answer = options.question = false;
  options.n_batch = 3;
  options.prompt_tokens = 40;
  options.decode_tokens = 4;
  options.n_repeats = 2;
  const BenchReport report = run_bench(*model, options);
  ASSERT_EQ(report.stages.size(), 1U);
  EXPECT_EQ(report.stages[0].name, "decode of 3");
  EXPECT_EQ(report.stages[0].n_items, 3);
  EXPECT_GT(report.stages[0].ms, 0);
  EXPECT_LE(report.stages[0].lowest_ms, report.stages[0].ms);
  EXPECT_GE(report.stages[0].highest_ms, report.stages[0].ms);
  EXPECT_GE(report.kv_cache_bytes, 3U * 44 * 2 * 2 * 64 * 2);
  EXPECT_EQ(report.n_image_tokens, 0);
}

TEST(Bench, PartsAndTimelineCoverTheStages) {
  const auto model = LoadedModel::with_random_weights(small_llava_config(), DType::kF32, {.n_threads = 2});
  BenchOptions options;
  options.prompt_tokens = 40;
  options.decode_tokens = 4;
  options.n_repeats = 1;
  options.picture_width_px = options.picture_height_px = 56;
  options.parts = options.timeline = true;
  const BenchReport report = run_bench(*model, options);
  std::map<std::string, double> ops;
  for (const PartTiming& part : report.parts) ops[part.stage] += part.cost.flops + part.cost.int8_ops;
  const auto cost_of = [&](const char* name) {
    for (const BenchStage& stage : report.stages)
      if (stage.name == name) return stage.cost.flops;
    return 0.0;
  };
  // The stages' costs count biases and norms among the parameters; the parts only products.
  EXPECT_NEAR(ops["tower"] + ops["projector"], cost_of("tower") + cost_of("projector"), 1.0);
  // The cost model is the least: a last layer whose queries are made for the last token only.
  const double queries = 2.0 * 39 * 64 * 64 + 4.0 * 64 * (40.0 * 41 / 2 - 40);
  EXPECT_NEAR((ops["prefill"] - queries) / cost_of("prefill"), 1.0, 0.01);
  EXPECT_NEAR(ops["decode"] / cost_of("decode"), 1.0, 0.01);
  std::set<std::string> zones;
  for (const ProfileEvent& event : report.timeline) zones.insert(event.name);
  for (const char* name : {"vision", "prefill", "decode", "self_attn.q_proj+k_proj+v_proj", "mlp.down_proj"})
    EXPECT_TRUE(zones.contains(name)) << name;
}

TEST(Bench, TestPictureIsAJpegOfItsSize) {
  const std::vector<std::byte> jpeg = make_test_jpeg(123, 45);
  const Image image = decode_image(jpeg, {}, "test");
  EXPECT_EQ(image.width_px, 123);
  EXPECT_EQ(image.height_px, 45);
  EXPECT_EQ(make_test_jpeg(123, 45), jpeg);
}

TEST(Bench, Median) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
}

}  // namespace
}  // namespace triptych
