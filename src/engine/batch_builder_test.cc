// Rows of sequences to the batch of a step: ids, positions, slots, rows of logits, media.
#include "engine/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kBlock = 4;

TEST(BatchBuilder, SequencesLieOneAfterAnother) {
  // Three tokens of a prompt of five, from its second on, and the next token of an answer.
  const std::int32_t ids[] = {11, 12, 13};
  const std::int32_t positions[] = {1, 101, 2, 102, 2, 103};  // two axes
  const std::int32_t blocks[] = {7, 3};
  const std::int32_t other_id[] = {21};
  const std::int32_t other_position[] = {50, 60};
  const std::int32_t other_blocks[] = {5, 0, 2};
  const std::int32_t last[] = {0};
  const SequenceRows sequences[] = {{.token_ids = ids,
                                     .positions = positions,
                                     .first_token = 2,
                                     .n_prompt = 5,
                                     .first_cache_index = 2,
                                     .blocks = blocks},
                                    {.token_ids = other_id,
                                     .positions = other_position,
                                     .first_token = 9,
                                     .n_prompt = 6,
                                     .first_cache_index = 9,
                                     .blocks = other_blocks,
                                     .logit_rows = last}};
  BatchBuilder builder(2, kBlock, 8, 2);
  const Batch batch = builder.build(sequences, nullptr);
  EXPECT_THAT(batch.token_ids, ElementsAre(11, 12, 13, 21));
  EXPECT_THAT(batch.positions, ElementsAre(1, 2, 2, 50, 101, 102, 103, 60)) << "axis by axis";
  EXPECT_THAT(batch.kv_slots, ElementsAre(7 * kBlock + 2, 7 * kBlock + 3, 3 * kBlock, 2 * kBlock + 1));
  EXPECT_THAT(batch.logit_rows, ElementsAre(3));
  ASSERT_EQ(batch.lengths.size(), 4U);
  EXPECT_EQ(batch.lengths[0].n_tokens, 3);
  EXPECT_EQ(batch.lengths[2].n_tokens, 5);
  EXPECT_EQ(batch.lengths[2].n_prompt, 5);
  EXPECT_EQ(batch.lengths[3].n_tokens, 10);
  EXPECT_EQ(batch.lengths[3].n_prompt, 6);
  ASSERT_EQ(batch.sequences.size(), 2U);
  EXPECT_EQ(batch.sequences[0].n_context, 5);
  EXPECT_EQ(batch.sequences[1].first_row, 3);
  EXPECT_EQ(batch.sequences[1].n_rows, 1);
  EXPECT_EQ(batch.sequences[1].n_context, 10);
  EXPECT_THAT(batch.sequences[1].pages, ElementsAre(5, 0, 2));
  EXPECT_THAT(batch.media, IsEmpty());
}

TEST(BatchBuilder, LogitsOfChosenRows) {
  const std::int32_t ids[] = {1, 2, 3, 4};
  const std::int32_t positions[] = {0, 1, 2, 3};
  const std::int32_t blocks[] = {0};
  const std::int32_t chosen[] = {0, 2, 3};
  const std::int32_t second[] = {1};
  SequenceRows one{.token_ids = ids, .positions = positions, .n_prompt = 1, .blocks = blocks};
  SequenceRows two = one;
  one.logit_rows = chosen;
  two.logit_rows = second;
  BatchBuilder builder(1, kBlock, 8, 2);
  const SequenceRows both[] = {one, two};
  EXPECT_THAT(builder.build(both, nullptr).logit_rows, ElementsAre(0, 2, 3, 5));

  const std::int32_t behind[] = {4};
  one.logit_rows = behind;
  EXPECT_THROW(builder.build({&one, 1}, nullptr), Error);
  const std::int32_t twice[] = {1, 1};
  one.logit_rows = twice;
  EXPECT_THROW(builder.build({&one, 1}, nullptr), Error);
}

// A sequence whose cache holds three of its hundred tokens: positions and lengths are the tokens' own.
TEST(BatchBuilder, PositionsAndPlacesInTheCacheAreApart) {
  const std::int32_t ids[] = {8, 9};
  const std::int32_t positions[] = {100, 101};
  const std::int32_t blocks[] = {6, 1};
  const SequenceRows one{.token_ids = ids,
                         .positions = positions,
                         .first_token = 100,
                         .n_prompt = 40,
                         .first_cache_index = 3,
                         .blocks = blocks};
  BatchBuilder builder(1, kBlock, 8, 1);
  const Batch batch = builder.build({&one, 1}, nullptr);
  EXPECT_THAT(batch.positions, ElementsAre(100, 101));
  EXPECT_THAT(batch.kv_slots, ElementsAre(6 * kBlock + 3, 1 * kBlock));
  EXPECT_EQ(batch.sequences[0].n_context, 5);
  EXPECT_EQ(batch.lengths[1].n_tokens, 102);
}

TEST(BatchBuilder, MediaRowsStandWhereTheirRunsSay) {
  // Tokens 4 to 7 of a prompt in which medium 0 stands at 2..6 (its rows 1..5) and medium 1 at 7..8.
  const std::int32_t ids[] = {9, 9, 9, 9};
  const std::int32_t positions[] = {4, 5, 6, 7};
  const std::int32_t blocks[] = {0, 1};
  const MediaRun runs[] = {{.media_index = 0, .first_media_row = 1, .first_prompt_row = 2, .n_rows = 4},
                           {.media_index = 1, .first_media_row = 0, .first_prompt_row = 7, .n_rows = 2}};
  std::vector<Tensor> rows;
  rows.emplace_back(DType::kF32, Shape{5, 2});
  rows.emplace_back(DType::kF32, Shape{2, 2});
  for (int i = 0; i < 10; ++i) rows[0].f32()[i] = static_cast<float>(i);
  for (int i = 0; i < 4; ++i) rows[1].f32()[i] = static_cast<float>(100 + i);
  SequenceRows one{.token_ids = ids,
                   .positions = positions,
                   .first_token = 4,
                   .n_prompt = 12,
                   .first_cache_index = 4,
                   .blocks = blocks,
                   .runs = runs,
                   .media_rows = rows};
  const SequenceRows before{.token_ids = ids, .positions = positions, .n_prompt = 4, .blocks = blocks};
  BatchBuilder builder(1, kBlock, 8, 2);
  const SequenceRows both[] = {before, one};
  const Batch batch = builder.build(both, nullptr);
  ASSERT_EQ(batch.media.size(), 2U);
  EXPECT_THAT(batch.media[0].at_rows, ElementsAre(4, 5));  // tokens 4 and 5
  ASSERT_EQ(batch.media[0].rows.dim(0), 2);
  EXPECT_EQ(batch.media[0].rows.cf32()[0], 6.0F) << "row 3 of the medium";
  EXPECT_THAT(batch.media[1].at_rows, ElementsAre(7));
  EXPECT_EQ(batch.media[1].rows.cf32()[0], 100.0F);

  rows[1] = Tensor();
  EXPECT_THAT(
      [&] {
        builder.build({&one, 1}, nullptr);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("medium 1 were not encoded")));
}

TEST(BatchBuilder, RefusesRowsWithoutAPlace) {
  const std::int32_t ids[] = {1, 2};
  const std::int32_t positions[] = {0, 1};
  const std::int32_t blocks[] = {0};
  SequenceRows one{.token_ids = ids, .positions = positions, .first_cache_index = 2, .blocks = blocks};
  BatchBuilder builder(1, kBlock, 8, 1);
  EXPECT_NO_THROW(builder.build({&one, 1}, nullptr));
  one.first_cache_index = 3;
  EXPECT_THROW(builder.build({&one, 1}, nullptr), Error);
  one.first_cache_index = 0;
  one.positions = one.positions.first(1);
  EXPECT_THROW(builder.build({&one, 1}, nullptr), Error);
}

TEST(BatchBuilder, BuffersStayWhereTheyAre) {
  const std::vector<std::int32_t> ids(8, 1);
  const std::vector<std::int32_t> blocks = {0, 1};
  BatchBuilder builder(1, kBlock, 8, 1);
  const SequenceRows small{.token_ids = std::span(ids).first(1),
                           .positions = std::span(ids).first(1),
                           .blocks = blocks,
                           .logit_rows = {}};
  const SequenceRows large{.token_ids = ids, .positions = ids, .blocks = blocks};
  const Batch first = builder.build({&small, 1}, nullptr);
  const Batch second = builder.build({&large, 1}, nullptr);
  EXPECT_EQ(first.token_ids.data(), second.token_ids.data());
  EXPECT_EQ(first.positions.data(), second.positions.data());
  EXPECT_EQ(first.lengths.data(), second.lengths.data());
  EXPECT_EQ(first.sequences.data(), second.sequences.data());
  EXPECT_EQ(first.kv_slots.data(), second.kv_slots.data());
}

}  // namespace
}  // namespace triptych
