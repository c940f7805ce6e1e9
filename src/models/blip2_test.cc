// BLIP-2 and InstructBLIP: where the queries stand in the prompt, and what the towers refuse. Values are
// compared with the reference in tests/parity.
#include <gmock/gmock.h>

#include "base/error.h"
#include "models/testing/tiny_models.h"

namespace triptych {
namespace {

using test::Geometry;
using test::TinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Blip : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, Blip, testing::Values("blip2", "instructblip"));

test::TinyFiles two_queries(const char* family) {
  auto files = test::tiny_files(family, Geometry::kSmall);
  files.config["num_query_tokens"] = 2;
  return files;
}

MediaPlan plan_of(const Model& model) {
  MediaMeta meta;
  meta.width_px = 30;
  meta.height_px = 20;
  return model.plan_media(meta, {});
}

// [query tokens][BOS][text], wherever the placeholder stood; 2 is the tokenizer's BOS.
TEST_P(Blip, QueriesThenBosThenText) {
  const TinyModel model(two_queries(GetParam()));
  const MediaPlan plan = plan_of(*model);
  EXPECT_EQ(plan.n_tokens, 2);
  const std::int32_t question[] = {2, 9, 5, 6};
  const PromptLayout layout = model->expand_prompt(question, {&plan, 1});
  EXPECT_THAT(layout.input_ids, ElementsAre(9, 9, 2, 5, 6));
  EXPECT_THAT(layout.positions, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(layout.next_position, 5);
  ASSERT_EQ(layout.runs.size(), 1U);
  EXPECT_EQ(layout.runs[0].first_prompt_row, 0);
  EXPECT_EQ(layout.runs[0].n_rows, 2);
  // A caption: no text, the answer starts behind BOS.
  const std::int32_t caption[] = {2, 9};
  EXPECT_THAT(model->expand_prompt(caption, {&plan, 1}).input_ids, ElementsAre(9, 9, 2));
  EXPECT_EQ(model->expand_prompt(caption, {&plan, 1}).next_position, 3);
  const std::int32_t text_only[] = {2, 5};
  EXPECT_THAT(model->expand_prompt(text_only, {}).input_ids, ElementsAre(2, 5));
}

TEST_P(Blip, PlaceholdersMustMatchPictures) {
  const TinyModel model(two_queries(GetParam()));
  const MediaPlan plan = plan_of(*model);
  const std::int32_t none[] = {2, 5};
  EXPECT_THROW(model->expand_prompt(none, {&plan, 1}), Error);
  const std::int32_t two[] = {9, 9, 5};
  EXPECT_THROW(model->expand_prompt(two, {&plan, 1}), Error);
  EXPECT_EQ(model->info().max_images, 1);
  EXPECT_FALSE(model->info().supports_system_prompt);
}

// A processor whose pictures do not fit the tower would read outside the position table.
TEST_P(Blip, ProcessorMustFitTheTower) {
  auto files = two_queries(GetParam());
  files.preprocessor["size"] = {{"width", 42}, {"height", 28}};
  try {
    const TinyModel model(std::move(files));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("28x28"));
  }
}

}  // namespace
}  // namespace triptych
