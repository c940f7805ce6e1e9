// Records of steps on the CPU backend: when the model is asked, when not, and what a failure leaves.
#include "engine/step_plans.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace triptych {
namespace {

// y = 2 * (rows of a table at `ids`) + bias, with the bias from a computation of this processor.
class TinyStep {
 public:
  TinyStep() : backend_(make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt})) {
    for (int i = 0; i < 12; ++i) table_.f32()[i] = static_cast<float>(i);
    WeightEntry entry;
    entry.name = "table";
    entry.view = table_.view();
    embedding_ = backend_->prepare_embedding(entry);
  }

  TensorView forward(ExecContext& cx) {
    ++n_calls_;
    TensorView x = cx.embedding(*embedding_, ids);
    TensorView bias = cx.empty(x.shape());
    cx.host([this, bias] {
      if (fails) fail(ErrorCode::kInvalidArgument, "the host part failed");
      for (std::int64_t i = 0; i < bias.numel(); ++i) bias.f32()[i] = offset;
    });
    {
      const ArenaScope scratch(cx.arena());
      TensorView sum = cx.add(x, x);
      cx.copy(sum, x);
    }
    return cx.add(x, bias);
  }
  StepClass step_class() const {
    const auto n = static_cast<std::int64_t>(ids.size());
    return {.shape = {.n_rows = n, .n_sequences = n}, .n_logit_rows = n, .addresses = {ids.data()}};
  }
  std::vector<float> run() {
    const TensorView y = plans.run(step_class(), [this](ExecContext& cx) { return forward(cx); });
    return {y.cf32(), y.cf32() + y.numel()};
  }
  int n_calls() const { return n_calls_; }
  Backend& backend() { return *backend_; }

  std::vector<std::int32_t> ids{1, 3};
  float offset = 0.5F;
  bool fails = false;

 private:
  std::unique_ptr<Backend> backend_;
  Tensor table_{DType::kF32, {4, 3}};
  std::unique_ptr<EmbeddingWeight> embedding_;
  int n_calls_ = 0;

 public:
  Arena arena{64, Buffer::allocate};
  StepPlans plans{*backend_, arena};
};

TEST(StepPlans, AReplayReadsNewInputsAndCallsNoModel) {
  TinyStep step;
  EXPECT_EQ(step.run(), (std::vector<float>{6.5F, 8.5F, 10.5F, 18.5F, 20.5F, 22.5F}));
  const int n_calls = step.n_calls();  // two when the first one had to merge the arena
  step.ids[0] = 0;
  step.offset = 1;
  EXPECT_EQ(step.run(), (std::vector<float>{1, 3, 5, 19, 21, 23}));
  EXPECT_EQ(step.n_calls(), n_calls);
  EXPECT_EQ(step.plans.n_recorded(), 1);
  EXPECT_EQ(step.plans.n_replayed(), 1);
}

TEST(StepPlans, AnotherShapeIsAnotherRecord) {
  TinyStep step;
  step.ids.reserve(8);
  step.run();
  step.ids.push_back(2);
  EXPECT_EQ(step.run().size(), 9U);
  step.ids.pop_back();
  EXPECT_EQ(step.run().size(), 6U);
  EXPECT_EQ(step.plans.n_recorded(), 2);
  EXPECT_EQ(step.plans.n_replayed(), 1);
}

TEST(StepPlans, MovedInputsAreRecordedAnew) {
  TinyStep step;
  step.run();
  std::vector<std::int32_t> moved = step.ids;
  step.ids.swap(moved);
  EXPECT_EQ(step.run(), (std::vector<float>{6.5F, 8.5F, 10.5F, 18.5F, 20.5F, 22.5F}));
  EXPECT_EQ(step.plans.n_recorded(), 2);
}

TEST(StepPlans, AnArenaThatMovedDropsAllRecords) {
  TinyStep step;
  step.run();
  ASSERT_EQ(step.plans.size(), 1U);
  const int n_calls = step.n_calls();
  step.arena.reset();
  step.arena.make_bytes(64);
  step.arena.make_bytes(step.arena.reserved_bytes());  // a second chunk, which the next reset merges
  EXPECT_EQ(step.run(), (std::vector<float>{6.5F, 8.5F, 10.5F, 18.5F, 20.5F, 22.5F}));
  EXPECT_EQ(step.plans.size(), 1U);
  EXPECT_EQ(step.plans.n_recorded(), 2);
  EXPECT_GT(step.n_calls(), n_calls);
  step.run();
  EXPECT_EQ(step.plans.n_replayed(), 1);
}

TEST(StepPlans, KeepsABoundedNumberTheLatestUsed) {
  TinyStep step;
  constexpr auto kCapacity = static_cast<std::int64_t>(StepPlans::kCapacity);
  step.ids.assign(1, 1);
  step.ids.reserve(StepPlans::kCapacity + 2);
  step.ids.resize(StepPlans::kCapacity + 1, 1);
  step.run();  // the largest first, so that the arena grows no more
  for (std::size_t n = 1; n <= StepPlans::kCapacity; ++n) {
    step.ids.resize(n);
    step.run();
  }
  EXPECT_EQ(step.plans.size(), StepPlans::kCapacity);
  EXPECT_EQ(step.plans.n_recorded(), kCapacity + 1);
  step.ids.resize(1);
  step.run();
  EXPECT_EQ(step.plans.n_replayed(), 1);
  step.ids.resize(StepPlans::kCapacity + 1, 1);
  step.run();  // it was the oldest
  EXPECT_EQ(step.plans.n_recorded(), kCapacity + 2);
}

TEST(StepPlans, AFailureInAReplayLeavesTheRecordUsable) {
  TinyStep step;
  const std::vector<float> good = step.run();
  step.fails = true;
  EXPECT_THROW(step.run(), Error);
  step.fails = false;
  EXPECT_EQ(step.run(), good);
  step.ids[1] = 4;  // no row of the table: checked in each run
  EXPECT_THROW(step.run(), Error);
  step.ids[1] = 3;
  EXPECT_EQ(step.run(), good);
  EXPECT_EQ(step.plans.n_recorded(), 1);
}

TEST(StepPlans, AFailureWhileRecordingLeavesTheBackendUsable) {
  TinyStep step;
  const auto broken = [](ExecContext& cx) -> TensorView {
    cx.add(cx.empty({2, 3}), cx.empty({3, 2}));
    return {};
  };
  EXPECT_THROW(step.plans.run(step.step_class(), broken), Error);
  EXPECT_FALSE(step.backend().is_recording());
  EXPECT_EQ(step.plans.size(), 0U);
  EXPECT_EQ(step.run().size(), 6U);
}

TEST(StepPlans, OtherThreadsComputeWhileOneRecords) {
  TinyStep step;
  ASSERT_TRUE(step.backend().begin_recording());
  EXPECT_TRUE(step.backend().is_recording());
  float sum = 0;
  std::thread([&] {
    EXPECT_FALSE(step.backend().is_recording());
    Arena arena;
    ExecContext cx(step.backend(), arena);
    const TensorView y = step.forward(cx);
    for (std::int64_t i = 0; i < y.numel(); ++i) sum += y.cf32()[i];
  }).join();
  EXPECT_EQ(sum, 87.0F);
  EXPECT_EQ(step.backend().end_recording()->n_operations(), 0);
}

TEST(StepPlans, OperationsOfARecordDoNotRunUntilItRuns) {
  TinyStep step;
  Arena arena;
  ExecContext cx(step.backend(), arena);
  ASSERT_TRUE(step.backend().begin_recording());
  const TensorView y = step.forward(cx);
  y.f32()[0] = -1;
  const auto plan = step.backend().end_recording();
  EXPECT_EQ(y.f32()[0], -1);
  EXPECT_GT(plan->n_operations(), 4);
  plan->run();
  EXPECT_EQ(y.f32()[0], 6.5F);
}

}  // namespace
}  // namespace triptych
