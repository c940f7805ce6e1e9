// Several rows of a sequence in one step, with logits of each, against one row after another; for every
// family, and where positions turn by a base that follows the length.
#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/block_pool.h"
#include "engine/engine.h"
#include "models/testing/tiny_models.h"

namespace triptych {
namespace {

std::unique_ptr<LoadedModel> make_model(std::string_view family,
                                        const std::function<void(Json&)>& change = {}) {
  Json config = test::tiny_files(family, test::Geometry::kSmall).config;
  if (change) change(config);
  return LoadedModel::with_random_weights(config, DType::kBF16, {.n_threads = 1});
}

PreparedRequest request_of(const LoadedModel& model, int n_tokens) {
  PreparedRequest out;
  for (int i = 0; i < n_tokens; ++i) out.token_ids.push_back(1 + (3 * i) % 7);
  out.layout = model.model().expand_prompt(out.token_ids, {});
  return out;
}

void expect_near(const TensorView& a, const TensorView& b, const std::string& what) {
  ASSERT_EQ(a.numel(), b.numel()) << what;
  float largest = 0;
  float difference = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(a.cf32()[i]));
    difference = std::max(difference, std::abs(a.cf32()[i] - b.cf32()[i]));
  }
  EXPECT_LE(difference, 1e-5F * largest) << what;
  const auto best = [](const TensorView& x) {
    return std::max_element(x.cf32(), x.cf32() + x.numel()) - x.cf32();
  };
  EXPECT_EQ(best(a), best(b)) << what;
}

// k tokens behind a prompt of `n_prompt`, at once and one by one; more of them than a block holds.
void expect_rows_as_steps(LoadedModel& model, int n_prompt, const std::string& what) {
  const EngineOptions options{.max_context_tokens = 256, .kv_cache_dtype = KvDType::kF32};
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 70; ++i) ids.push_back(1 + (5 * i) % 7);
  Engine together(model, options);
  together.forward_prompt(request_of(model, n_prompt), nullptr);
  const Tensor rows = Tensor::copy_of(together.forward_next(ids, nullptr));
  ASSERT_EQ(rows.view().dim(0), 70) << what;
  Engine apart(model, options);
  apart.forward_prompt(request_of(model, n_prompt), nullptr);
  for (std::size_t i = 0; i < ids.size(); ++i)
    expect_near(rows.view().row(static_cast<std::int64_t>(i)), apart.forward_next(ids[i], nullptr).row(0),
                fmt::format("{}, row {}", what, i));
  // And both go on alike.
  expect_near(together.forward_next(3, nullptr).row(0), apart.forward_next(3, nullptr).row(0), what);
}

class SeveralRows : public testing::TestWithParam<std::string_view> {};

TEST_P(SeveralRows, AreTheRowsOfSingleSteps) {
  const auto model = make_model(GetParam());
  expect_rows_as_steps(*model, 5, std::string(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Families, SeveralRows, testing::ValuesIn(test::kFamilies),
                         [](const auto& one) { return std::string(one.param); });

TEST(SeveralRowsOfOneStep, EachTurnsByTheBaseOfItsOwnLength) {
  const auto dynamic = make_model("llava", [](Json& config) {
    config["text_config"]["max_position_embeddings"] = 32;
    config["text_config"]["rope_scaling"] = {{"type", "dynamic"}, {"factor", 8.0}};
  });
  expect_rows_as_steps(*dynamic, 20, "dynamic");  // from 21 to 90: the base begins to grow on the way
  const auto qwen = make_model("qwen_vl", [](Json& config) { config["seq_length"] = 32; });
  expect_rows_as_steps(*qwen, 40, "the prompt's base");
}

// Two sequences in a step, logits of some rows of each.
TEST(ModelRunner, GivesLogitsOfChosenRows) {
  const auto model = make_model("qwen2_vl");
  const int n_axes = model->info().n_position_axes;
  ModelRunner runner(model->model(), model->backend(), {.n_blocks = 4});
  std::vector<std::int32_t> ids[2] = {{1, 2, 3, 4, 5}, {6, 5, 4}};
  std::vector<std::int32_t> positions[2];
  for (int s = 0; s < 2; ++s)
    for (int t = 0; t < static_cast<int>(ids[s].size()); ++t)
      positions[s].insert(positions[s].end(), static_cast<std::size_t>(n_axes), t);
  const std::int32_t blocks[2] = {2, 0};
  const auto rows_of = [&](int s, std::span<const std::int32_t> wanted) {
    return SequenceRows{.token_ids = ids[s],
                        .positions = positions[s],
                        .n_prompt = static_cast<std::int64_t>(ids[s].size()),
                        .blocks = {&blocks[s], 1},
                        .logit_rows = wanted};
  };
  const std::int32_t all[] = {0, 1, 2, 3, 4};
  const SequenceRows everything[] = {rows_of(0, all), rows_of(1, std::span(all).first(3))};
  const Tensor full = Tensor::copy_of(runner.forward(everything, nullptr));
  ASSERT_EQ(full.view().dim(0), 8);
  const std::int32_t of_first[] = {0, 3};
  const std::int32_t of_second[] = {1};
  const SequenceRows some[] = {rows_of(0, of_first), rows_of(1, of_second)};
  const TensorView chosen = runner.forward(some, nullptr);
  ASSERT_EQ(chosen.dim(0), 3);
  const std::int64_t expected[] = {0, 3, 5 + 1};
  for (std::int64_t i = 0; i < 3; ++i)
    expect_near(chosen.row(i), full.view().row(expected[i]), fmt::format("row {}", expected[i]));
}

}  // namespace
}  // namespace triptych
