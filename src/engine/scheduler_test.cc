// Rows of a step, admission and preemption, by counts alone.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Rows = ScheduledRows;

constexpr std::int64_t kEnough = 1 << 20;

SequenceState state(std::int64_t n_tokens, std::int64_t n_computed, std::int64_t n_blocks) {
  return {.n_tokens = n_tokens, .n_computed = n_computed, .n_blocks = n_blocks, .n_owned_blocks = n_blocks};
}

Schedule schedule(const std::vector<SequenceState>& running, std::int64_t n_free, std::int64_t max_tokens) {
  Schedule out;
  out.rows = {{7, 7}};
  out.preempted = {7};
  Scheduler({.max_batch_tokens = max_tokens, .max_sequences = 8}).schedule(running, n_free, out);
  return out;
}

TEST(Scheduler, DecodingGoesFirstAndPromptsShareTheRest) {
  // A prompt begun, one that decodes, a prompt not begun, another that decodes.
  const std::vector<SequenceState> running = {state(100, 40, 1), state(20, 19, 1), state(50, 0, 0),
                                              state(9, 8, 1)};
  EXPECT_THAT(schedule(running, kEnough, 1024).rows,
              ElementsAre(Rows{1, 1}, Rows{3, 1}, Rows{0, 60}, Rows{2, 50}));
  EXPECT_THAT(schedule(running, kEnough, 80).rows,
              ElementsAre(Rows{1, 1}, Rows{3, 1}, Rows{0, 60}, Rows{2, 18}));
  EXPECT_THAT(schedule(running, kEnough, 62).rows, ElementsAre(Rows{1, 1}, Rows{3, 1}, Rows{0, 60}));
  EXPECT_THAT(schedule(running, kEnough, 1).rows, ElementsAre(Rows{1, 1}, Rows{3, 1}))
      << "sequences that decode never wait";
  EXPECT_THAT(schedule({}, kEnough, 80).rows, IsEmpty());
}

TEST(Scheduler, TheYoungestGivesWayWhenBlocksRunOut) {
  // Three that decode, the first two at the end of their blocks.
  const std::vector<SequenceState> running = {state(65, 64, 1), state(129, 128, 2), state(70, 69, 2)};
  EXPECT_THAT(schedule(running, 2, 64).preempted, IsEmpty());
  const Schedule one = schedule(running, 1, 64);
  EXPECT_THAT(one.preempted, ElementsAre(2U));
  EXPECT_THAT(one.rows, ElementsAre(Rows{0, 1}, Rows{1, 1}));
  EXPECT_THAT(schedule(running, 0, 64).preempted, ElementsAre(2U)) << "its two blocks are enough";
}

TEST(Scheduler, SharedBlocksAreNotGained) {
  std::vector<SequenceState> running = {state(65, 64, 1), state(129, 128, 2), state(70, 69, 2)};
  running[2].n_owned_blocks = 1;
  EXPECT_THAT(schedule(running, 0, 64).preempted, ElementsAre(2U, 1U));
  running[2].n_owned_blocks = 0;
  EXPECT_THAT(schedule(running, 1, 64).preempted, ElementsAre(2U, 1U));
  EXPECT_THAT(schedule(running, 1, 64).rows, ElementsAre(Rows{0, 1}));
}

TEST(Scheduler, ThePromptThatDoesNotFitThisStepTakesNoBlocks) {
  // The second has no rows in this step, so it needs none of the one block left.
  const std::vector<SequenceState> running = {state(64, 0, 0), state(500, 0, 0)};
  const Schedule out = schedule(running, 1, 64);
  EXPECT_THAT(out.preempted, IsEmpty());
  EXPECT_THAT(out.rows, ElementsAre(Rows{0, 64}));
}

TEST(Scheduler, TheOldestIsNeverPreempted) {
  const Schedule out = schedule({state(65, 64, 1)}, 0, 64);
  EXPECT_THAT(out.preempted, IsEmpty());
  EXPECT_THAT(out.rows, ElementsAre(Rows{0, 1}));
  EXPECT_EQ(out.n_missing_blocks, 1);
  EXPECT_EQ(schedule({state(65, 64, 1)}, 1, 64).n_missing_blocks, 0);
}

TEST(Scheduler, ASequenceStartsWhenItsTokensFitBesideThoseThatRun) {
  const Scheduler scheduler({.max_batch_tokens = 64, .max_sequences = 2});
  const std::vector<SequenceState> one = {state(130, 64, 1)};  // needs two blocks more for its prompt
  EXPECT_TRUE(scheduler.admits(one, state(63, 0, 0), 3));
  EXPECT_FALSE(scheduler.admits(one, state(63, 0, 0), 2));
  EXPECT_FALSE(scheduler.admits(one, state(64, 0, 0), 3)) << "its first token has a place, too";
  EXPECT_TRUE(scheduler.admits(one, state(64, 32, 1), 3)) << "blocks shared with another are there already";
  EXPECT_TRUE(scheduler.admits({}, state(64, 0, 0), 2));
  const std::vector<SequenceState> two = {state(2, 1, 1), state(2, 1, 1)};
  EXPECT_FALSE(scheduler.admits(two, state(1, 0, 0), kEnough)) << "no place is free";
}

}  // namespace
}  // namespace triptych
