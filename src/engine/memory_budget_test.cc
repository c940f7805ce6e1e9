// A limit is kept: sizes follow it, what could never fit is refused with the numbers, the rest is answered.
#include "engine/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "models/testing/tiny_models.h"

namespace triptych {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr EngineSizes kSizes{
    .n_step_rows = 256, .n_sequences = 4, .n_pass_patches = 512, .kv_dtype = KvDType::kF32};
constexpr std::size_t kPlenty_bytes = std::size_t{1} << 34;

std::unique_ptr<LoadedModel> make_model(std::string_view family) {
  return LoadedModel::with_random_weights(test::tiny_files(family, test::Geometry::kSmall).config,
                                          DType::kBF16, {.n_threads = 1});
}

MediaItem picture(const LoadedModel& model, int side) {
  Image image{side, side, {}};
  image.rgb.resize(static_cast<std::size_t>(3 * side * side));
  MediaItem out;
  out.plan = model.model().plan_media({.width_px = side, .height_px = side}, {});
  out.pixels = model.model().preprocess({&image, 1}, out.plan, nullptr);
  if (!model.info().media_text_tokenizer.empty()) out.text_ids = {0};
  return out;
}

PreparedRequest request(const LoadedModel& model, int n_text, int side = 0) {
  PreparedRequest out;
  std::vector<MediaPlan> plans;
  if (side > 0) {
    out.media.push_back(picture(model, side));
    plans.push_back(out.media[0].plan);
    out.token_ids.push_back(model.info().image_token_id);
  }
  for (int i = 0; i < n_text; ++i) out.token_ids.push_back(1 + i % 7);
  out.layout = model.model().expand_prompt(out.token_ids, plans);
  return out;
}

SamplingParams answer(std::int64_t n) {
  SamplingParams out;
  out.max_tokens = n;
  out.ignore_eos = true;
  return out;
}

class MemoryBudgetOf : public testing::TestWithParam<std::string_view> {};

// What is foretold of a step and of a pass is what their arenas take.
TEST_P(MemoryBudgetOf, ScratchMemoryIsForetold) {
  const auto model = make_model(GetParam());
  const MemoryBudget budget(kPlenty_bytes, model->model(), model->backend(), kSizes);
  EXPECT_GT(budget.weights_bytes(), 0U);
  EXPECT_GT(budget.n_blocks(), 1000);
  Arena arena(Arena::kMinChunkBytes);
  const std::vector<MediaItem> items = [&] {
    std::vector<MediaItem> out;
    out.push_back(picture(*model, 448));
    return out;
  }();
  ExecContext cx(model->backend(), arena);
  model->model().encode_media(cx, items);
  const double foretold = static_cast<double>(budget.pass_bytes()) /
                          static_cast<double>(kSizes.n_pass_patches) *
                          static_cast<double>(items[0].plan.n_patches);
  EXPECT_NEAR(static_cast<double>(arena.high().tensor_bytes), foretold, 0.01 * foretold);
}

INSTANTIATE_TEST_SUITE_P(Families, MemoryBudgetOf, testing::ValuesIn(test::kFamilies),
                         [](const auto& one) { return std::string(one.param); });

TEST(MemoryBudget, WithoutALimitEverythingFits) {
  const MemoryBudget none;
  EXPECT_FALSE(none.is_limited());
  EXPECT_NO_THROW(none.check(std::int64_t{1} << 40, {}));
  EXPECT_EQ(none.picture_blocks({}), 0);
}

TEST(MemoryBudget, WhatCouldNeverFitIsRefusedAtOnce) {
  const auto model = make_model("qwen2_vl");
  const MemoryBudget sizes(kPlenty_bytes, model->model(), model->backend(), kSizes);
  const std::size_t fixed_bytes = sizes.weights_bytes() + sizes.step_bytes() + sizes.pass_bytes();
  EngineOptions options{.max_context_tokens = 4096,
                        .kv_cache_tokens = 1 << 20,
                        .max_batch_tokens = kSizes.n_step_rows,
                        .max_sequences = static_cast<int>(kSizes.n_sequences),
                        .kv_cache_dtype = kSizes.kv_dtype,
                        .max_batch_patches = kSizes.n_pass_patches};
  options.memory_limit_bytes = fixed_bytes;
  EXPECT_THAT([&] { Engine(*model, options); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("leaves nothing"), HasSubstr("weights"))));

  const std::int64_t n_blocks = sizes.picture_blocks({}) + 40;
  options.memory_limit_bytes = fixed_bytes + static_cast<std::size_t>(n_blocks) * sizes.block_bytes();
  Engine engine(*model, options);
  EXPECT_EQ(engine.max_context_tokens(), n_blocks * kBlockTokens);
  EXPECT_LE(fixed_bytes + engine.kv_cache_bytes(), options.memory_limit_bytes);
  EXPECT_THAT([&] { engine.submit(request(*model, 100, 896), answer(4)); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("can never fit"), HasSubstr("1 pictures"))));
  EXPECT_THROW(engine.submit(request(*model, static_cast<int>(n_blocks * kBlockTokens)), answer(4)), Error);
  // More than fit at once: all are answered, one after another.
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i)
    ids.push_back(engine.submit(request(*model, 500 + i, i % 3 == 0 ? 56 : 0), answer(8)));
  while (engine.has_work()) engine.step();
  for (const RequestId id : ids) EXPECT_EQ(engine.take_result(id).value().token_ids.size(), 8U);
}

// Pictures take what the limit allows beside a cache that was asked to be small, and only then of the cache.
TEST(MemoryBudget, PicturesFitBesideASmallCache) {
  const auto model = make_model("qwen2_vl");
  const MemoryBudget sizes(kPlenty_bytes, model->model(), model->backend(), kSizes);
  EngineOptions options{.max_context_tokens = 512,
                        .kv_cache_tokens = 512,
                        .max_batch_tokens = kSizes.n_step_rows,
                        .max_sequences = static_cast<int>(kSizes.n_sequences),
                        .kv_cache_dtype = kSizes.kv_dtype,
                        .max_batch_patches = kSizes.n_pass_patches};
  options.memory_limit_bytes = kPlenty_bytes;
  const PreparedRequest asked = request(*model, 100, 448);
  const MemoryBudget limit(kPlenty_bytes, model->model(), model->backend(), kSizes);
  ASSERT_GT(limit.picture_blocks(asked.media), blocks_for(512)) << "more than the whole cache";
  Engine engine(*model, options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(engine.submit(request(*model, 100, 448), answer(8)));
  while (engine.has_work()) engine.step();
  for (const RequestId id : ids) EXPECT_EQ(engine.take_result(id).value().token_ids.size(), 8U);
}

}  // namespace
}  // namespace triptych
