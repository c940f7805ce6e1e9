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
  Scheduler({.max_batch_tokens = max_tokens, .max_sequences = 8}).schedule(running, n_free, kEnough, out);
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

TEST(Scheduler, TheLastInRankGivesWayWhenBlocksRunOut) {
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

TEST(Scheduler, TheFirstIsNeverPreempted) {
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

TEST(Scheduler, TokensBehindAPictureWaitForItsRows) {
  std::vector<SequenceState> running = {state(100, 0, 0), state(20, 19, 1), state(50, 10, 1)};
  running[0].n_ready = 12;
  running[2].n_ready = 10;
  EXPECT_THAT(schedule(running, kEnough, 1024).rows, ElementsAre(Rows{1, 1}, Rows{0, 12}));
  // One row is left, and it is not ready: it does not decode.
  std::vector<SequenceState> last = {state(20, 19, 1)};
  last[0].n_ready = 19;
  EXPECT_THAT(schedule(last, kEnough, 1024).rows, IsEmpty());
}

// A clock that a test sets.
struct At {
  double ms = 0;
  ClockMs clock() {
    return [this] { return ms; };
  }
};

std::uint64_t next_id(const Scheduler& scheduler, const std::vector<Ticket>& waiting) {
  std::vector<const Ticket*> tickets;
  for (const Ticket& ticket : waiting) tickets.push_back(&ticket);
  return waiting[scheduler.next(tickets)].id;
}

TEST(Scheduler, WaitingMakesUpForPriority) {
  At at;
  Scheduler scheduler({.aging_ms = 100}, at.clock());
  std::vector<Ticket> waiting = {scheduler.enter(1, 2, "a")};
  at.ms = 150;
  waiting.push_back(scheduler.enter(2, 0, "a"));
  waiting.push_back(scheduler.enter(3, 0, "a"));
  EXPECT_EQ(next_id(scheduler, waiting), 2U) << "one level was made up for, one is left";
  at.ms = 250;  // the others have waited for one, too
  EXPECT_EQ(next_id(scheduler, waiting), 2U);
  waiting.push_back(scheduler.enter(4, 0, "a"));
  waiting.erase(waiting.begin() + 1, waiting.begin() + 3);
  EXPECT_EQ(next_id(scheduler, waiting), 1U) << "on a level with one that has just come, and older";
}

TEST(Scheduler, WhoeverGaveWayGoesBeforeHisLevel) {
  At at;
  Scheduler scheduler({}, at.clock());
  std::vector<Ticket> waiting = {scheduler.enter(1, 0, "a"), scheduler.enter(2, 0, "b"),
                                 scheduler.enter(3, -1, "b")};
  scheduler.start(waiting[1], 1000, 10);
  EXPECT_EQ(next_id(scheduler, waiting), 3U);
  waiting.pop_back();
  EXPECT_EQ(next_id(scheduler, waiting), 2U) << "though its tenant was served more";
}

TEST(Scheduler, RankOfThoseThatRunIsPriorityAndArrival) {
  At at;
  Scheduler scheduler({.aging_ms = 100}, at.clock());
  const Ticket old_low = scheduler.enter(1, 1, "");
  at.ms = 99;
  const Ticket urgent = scheduler.enter(2, 0, "");
  at.ms = 101;
  const Ticket late = scheduler.enter(3, 0, "");
  EXPECT_TRUE(scheduler.precedes(urgent, old_low));
  EXPECT_TRUE(scheduler.precedes(old_low, late));
  EXPECT_FALSE(scheduler.precedes(late, late));
}

TEST(Scheduler, ATenantPaysForWhatItUsed) {
  At at;
  Scheduler scheduler({}, at.clock());
  Ticket a = scheduler.enter(1, 0, "a");
  Ticket b = scheduler.enter(2, 0, "b");
  scheduler.start(a, 100, 1000);
  EXPECT_EQ(scheduler.shares().served(a.tenant), 164) << "the prompt and the beginning of an answer";
  scheduler.progress(a, 130);
  EXPECT_EQ(scheduler.shares().served(a.tenant), 164);
  scheduler.progress(a, 300);
  EXPECT_EQ(scheduler.shares().served(a.tenant), 300);
  scheduler.start(a, 100, 1000);  // again, after a preemption: nothing is paid twice
  EXPECT_EQ(scheduler.shares().served(a.tenant), 300);
  scheduler.start(b, 100, 30);
  EXPECT_EQ(scheduler.shares().served(b.tenant), 130);
  Ticket c = scheduler.enter(3, 0, "b");
  scheduler.leave(b, 105);
  EXPECT_EQ(scheduler.shares().served(c.tenant), 105) << "25 tokens came not";
  scheduler.leave(c, 10);
  EXPECT_EQ(scheduler.shares().served(c.tenant), 105) << "it never ran";
}

TEST(Scheduler, TimeIsShared) {
  At at;
  Scheduler scheduler({.max_batch_tokens = 512, .max_step_ms = 40}, at.clock());
  const std::vector<SequenceState> idle = {state(100, 0, 0)};
  const std::vector<SequenceState> busy = {state(100, 0, 0), state(20, 19, 1)};
  const std::vector<SequenceState> decoding = {state(20, 19, 1)};
  EXPECT_FALSE(scheduler.budget(idle, true).is_cut()) << "nobody waits for a token";
  EXPECT_EQ(scheduler.budget(busy, false).prefill_rows, 16) << "the first rows tell what a row costs";
  scheduler.note_step({.n_decode_rows = 1, .n_prefill_rows = 0, .ms = 10});
  scheduler.note_step({.n_decode_rows = 1, .n_prefill_rows = 16, .ms = 14});
  EXPECT_EQ(scheduler.budget(busy, false).prefill_rows, 120) << "30 ms at a quarter each";
  EXPECT_EQ(scheduler.budget(busy, true).prefill_rows, 60) << "the tower gets half";
  EXPECT_EQ(scheduler.budget(busy, true).encode_ms, 15);
  EXPECT_EQ(scheduler.budget(decoding, true).encode_ms, 30);
  for (int i = 0; i < 50; ++i) scheduler.note_step({.n_decode_rows = 8, .n_prefill_rows = 0, .ms = 100});
  EXPECT_EQ(scheduler.budget(busy, false).prefill_rows, 40)
      << "a quarter of the time goes to prompts all the same";
  Scheduler unlimited({.max_batch_tokens = 512}, at.clock());
  EXPECT_FALSE(unlimited.budget(busy, true).is_cut());
}

TEST(Scheduler, RowsOfPromptsStayWithinTheBudget) {
  const std::vector<SequenceState> running = {state(100, 40, 1), state(20, 19, 1), state(50, 0, 0)};
  Schedule out;
  Scheduler({.max_batch_tokens = 1024}).schedule(running, kEnough, 70, out);
  EXPECT_THAT(out.rows, ElementsAre(Rows{1, 1}, Rows{0, 60}, Rows{2, 10}));
}

}  // namespace
}  // namespace triptych
