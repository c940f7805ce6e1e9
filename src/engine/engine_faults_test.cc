// One request must never hurt another: a sequence that fails ends alone, the others get bit for bit what they
// get without it, and the engine goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/testing/faulty_model.h"

namespace triptych {
namespace {

using testing::HasSubstr;

constexpr int kVictimPrompt = 11;  // no other prompt has this length: the victim is known by it
constexpr int kTokensBefore = 4;   // of the victim's answer, before it fails
const EngineOptions kOptions = {.max_context_tokens = 512,
                                .kv_cache_tokens = 2048,
                                .max_batch_tokens = 16,
                                .kv_cache_dtype = KvDType::kF32,
                                .replay_steps = false};

PreparedRequest text_of(LoadedModel& model, int n_tokens, int first) {
  PreparedRequest out;
  for (int i = 0; i < n_tokens; ++i) out.token_ids.push_back(1 + (first + 3 * i) % 7);
  out.layout = model.model().expand_prompt(out.token_ids, {});
  return out;
}

// Behind `n_tokens` of text, a picture of one colour.
PreparedRequest picture_of(LoadedModel& model, int n_tokens, std::uint8_t colour) {
  PreparedRequest out = text_of(model, n_tokens, colour);
  Image image{28, 28, {}};
  image.rgb.assign(std::size_t{3} * 28 * 28, colour);
  MediaItem item;
  item.plan = model.model().plan_media({.width_px = 28, .height_px = 28}, {});
  item.pixels = model.model().preprocess({&image, 1}, item.plan, nullptr);
  item.fingerprint.high = colour;
  out.token_ids.push_back(model.info().image_token_id);
  out.layout = model.model().expand_prompt(out.token_ids, {&item.plan, 1});
  out.media.push_back(std::move(item));
  return out;
}

SamplingParams sampled(std::int64_t max_tokens) {
  SamplingParams out;
  out.max_tokens = max_tokens;
  out.temperature = 1.0F;
  out.seed = 3;
  out.ignore_eos = true;
  out.n_logprobs = 3;
  return out;
}

// All numbers of an answer, to be compared bit for bit.
struct Answer {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kStop;
  friend bool operator==(const Answer&, const Answer&) = default;
};

Answer answer_of(const GenerationResult& result) {
  Answer out{result.token_ids, {}, result.finish_reason};
  for (const SampledToken& token : result.tokens) {
    out.logprobs.push_back(token.logprob);
    for (const TokenLogprob& other : token.top) out.logprobs.push_back(other.logprob);
  }
  return out;
}

struct Served {
  std::vector<Answer> others;
  std::optional<GenerationResult> victim;
};

class EngineFaults : public testing::Test {
 protected:
  LoadedModel& model() { return *model_; }
  test::Faults& faults() { return *model_.faults; }

  // The victim, when `submit_victim` gives one, between two others, and a fourth that comes later.
  Served serve(const std::function<std::optional<Engine::RequestId>(Engine&)>& submit_victim,
               EngineOptions options = kOptions) {
    Engine engine(model(), options);
    std::vector<Engine::RequestId> ids;
    ids.push_back(engine.submit(picture_of(model(), 5, 10), sampled(30)));
    const auto victim = submit_victim(engine);
    ids.push_back(engine.submit(text_of(model(), 40, 2), sampled(12)));
    for (int i = 0; i < 3; ++i) engine.step();
    ids.push_back(engine.submit(picture_of(model(), 3, 30), sampled(20)));
    while (engine.has_work()) engine.step();
    Served out;
    for (const Engine::RequestId id : ids) out.others.push_back(answer_of(engine.take_result(id).value()));
    if (victim) out.victim = engine.take_result(*victim);
    EXPECT_EQ(out.victim.has_value(), victim.has_value());
    // Whatever happened, the engine answers.
    EXPECT_EQ(engine.generate(text_of(model(), 4, 1), sampled(5)).token_ids.size(), 5U);
    return out;
  }

  Served serve_text_victim(std::int64_t max_tokens, const TokenCallback& on_token = {}) {
    return serve([&](Engine& engine) {
      return engine.submit(text_of(model(), kVictimPrompt, 5), sampled(max_tokens), on_token);
    });
  }

  // Calls the fault for steps that feed the victim's token behind `n_answer` of its answer.
  static std::optional<std::size_t> victim_row(const Batch& batch, int n_answer) {
    for (std::size_t row = 0; row < batch.lengths.size(); ++row)
      if (batch.lengths[row].n_prompt == kVictimPrompt &&
          batch.lengths[row].n_tokens == kVictimPrompt + n_answer)
        return row;
    return std::nullopt;
  }

  // Cancels at the same token at which a fault ends the victim elsewhere: the same batches.
  Served serve_cancelled_victim() {
    int n = 0;
    return serve_text_victim(50, [&n](const TokenEvent&) { return ++n <= kTokensBefore; });
  }

  static void expect_failed(const Served& run, ErrorCode code, const std::string& message) {
    ASSERT_TRUE(run.victim.has_value());
    EXPECT_EQ(run.victim->finish_reason, FinishReason::kError);
    ASSERT_TRUE(run.victim->error.has_value());
    EXPECT_EQ(run.victim->error->code, code);
    EXPECT_THAT(run.victim->error->message, HasSubstr(message));
  }

  test::FaultyTinyModel model_{"llava"};
};

TEST_F(EngineFaults, LogitsThatAreNotFinite) {
  const Served control = serve_cancelled_victim();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    faults().after_forward = [&](const Batch& batch, TensorView logits) {
      const auto row = victim_row(batch, kTokensBefore);
      for (std::size_t i = 0; row && i < batch.logit_rows.size(); ++i)
        if (batch.logit_rows[i] == static_cast<std::int32_t>(*row))
          logits.row(static_cast<std::int64_t>(i)).f32()[3] = bad;
    };
    const Served run = serve_text_victim(50);
    faults().after_forward = nullptr;
    expect_failed(run, ErrorCode::kInvalidFile, "1 of 16 values are not finite");
    EXPECT_EQ(run.victim->token_ids.size(), static_cast<std::size_t>(kTokensBefore))
        << "what came until then";
    EXPECT_EQ(run.others, control.others);
  }
}

TEST_F(EngineFaults, ACallbackThatThrows) {
  const Served control = serve_cancelled_victim();
  int n = 0;
  const Served run = serve_text_victim(50, [&n](const TokenEvent&) -> bool {
    if (++n > kTokensBefore) throw std::runtime_error("the client has gone");
    return true;
  });
  expect_failed(run, ErrorCode::kInternal, "the client has gone");
  EXPECT_EQ(n, kTokensBefore + 1) << "it is not called again";
  EXPECT_EQ(run.others, control.others);
}

TEST_F(EngineFaults, AStepThatThrowsBecauseOfOneSequence) {
  const Served control = serve_text_victim(kTokensBefore);
  EXPECT_EQ(control.victim->finish_reason, FinishReason::kLength);
  const auto fails_with = [&](const std::function<void()>& fault) {
    faults().before_forward = [&, fault](const Batch& batch) {
      if (victim_row(batch, kTokensBefore)) fault();
    };
    Served out = serve_text_victim(50);
    faults().before_forward = nullptr;
    return out;
  };
  const Served failed = fails_with([] { fail(ErrorCode::kUnsupported, "layer 3 cannot do this"); });
  expect_failed(failed, ErrorCode::kUnsupported, "layer 3");
  EXPECT_EQ(failed.others, control.others);
  EXPECT_EQ(failed.victim->token_ids, control.victim->token_ids);
  const Served no_memory = fails_with([] { throw std::bad_alloc(); });
  expect_failed(no_memory, ErrorCode::kOutOfMemory, "no memory");
  EXPECT_EQ(no_memory.others, control.others);
}

TEST_F(EngineFaults, ATowerThatThrows) {
  const Served control = serve([](Engine&) { return std::nullopt; });
  faults().before_encode = [](std::span<const MediaItem> items) {
    for (const MediaItem& item : items)
      if (item.fingerprint.high == 200) fail(ErrorCode::kOutOfMemory, "no memory for the tower");
  };
  faults().before_forward = [](const Batch& batch) {
    for (const RowLengths& row : batch.lengths)
      EXPECT_NE(row.n_prompt, 2 + 4) << "its rows were never filled";
  };
  const Served run = serve([&](Engine& engine) {
    PreparedRequest request = picture_of(model(), 2, 200);
    EXPECT_EQ(request.layout.input_ids.size(), 6U);
    return engine.submit(std::move(request), sampled(50));
  });
  expect_failed(run, ErrorCode::kOutOfMemory, "no memory for the tower");
  EXPECT_TRUE(run.victim->token_ids.empty());
  EXPECT_EQ(run.others, control.others) << "as if it had not been there";
}

// No sequence is at fault: each goes alone, none is lost.
TEST_F(EngineFaults, AStepTooLargeForTheMemory) {
  EngineOptions one = kOptions;
  one.max_sequences = 1;
  const Served control = serve([](Engine&) { return std::nullopt; }, one);
  int n_refused = 0;
  faults().before_forward = [&](const Batch& batch) {
    if (batch.sequences.size() < 2) return;
    ++n_refused;
    fail(ErrorCode::kOutOfMemory, "no memory for {} rows", batch.token_ids.size());
  };
  const Served run = serve([](Engine&) { return std::nullopt; });
  EXPECT_GT(n_refused, 10);
  for (std::size_t i = 0; i < run.others.size(); ++i)
    EXPECT_EQ(run.others[i].ids, control.others[i].ids) << i;
}

TEST_F(EngineFaults, WhenEverythingFailsEverythingEnds) {
  Engine engine(model(), kOptions);
  faults().before_forward = [](const Batch&) { fail(ErrorCode::kInternal, "the device is lost"); };
  for (int i = 0; i < 3; ++i) engine.submit(text_of(model(), 4 + i, i), sampled(5));
  const std::span<const StepOutput> outputs = engine.step();
  ASSERT_EQ(outputs.size(), 3U);
  for (const StepOutput& out : outputs) {
    EXPECT_EQ(out.finish_reason, FinishReason::kError);
    ASSERT_TRUE(out.error.has_value());
    EXPECT_EQ(out.error->message, "the device is lost");
    EXPECT_TRUE(out.events.empty());
  }
  EXPECT_FALSE(engine.has_work());
  faults().before_forward = nullptr;
  EXPECT_EQ(engine.generate(text_of(model(), 4, 1), sampled(5)).token_ids.size(), 5U);
}

TEST_F(EngineFaults, GenerateThrowsWhatItsOwnRequestThrew) {
  struct Gone {};
  Engine engine(model(), kOptions);
  const auto other = engine.submit(text_of(model(), 9, 1), sampled(6));
  EXPECT_THROW(engine.generate(text_of(model(), kVictimPrompt, 1), sampled(50),
                               [](const TokenEvent&) -> bool { throw Gone(); }),
               Gone);
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.take_result(other).value().token_ids.size(), 6U);
  faults().before_forward = [](const Batch& batch) {
    if (victim_row(batch, 1)) fail(ErrorCode::kUnsupported, "not this one");
  };
  const auto second = engine.submit(text_of(model(), 9, 1), sampled(6));
  EXPECT_THAT([&] { engine.generate(text_of(model(), kVictimPrompt, 1), sampled(50)); },
              testing::Throws<Error>(testing::Property(&Error::code, ErrorCode::kUnsupported)));
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.take_result(second).value().finish_reason, FinishReason::kLength);
}

// A failed sequence's keys and values are nobody's beginning.
TEST_F(EngineFaults, AFailedSequenceIsNotKept) {
  EngineOptions options = kOptions;
  options.prefix_cache_bytes = std::size_t{1} << 30;
  Engine engine(model(), options);
  faults().before_forward = [](const Batch& batch) {
    if (victim_row(batch, kTokensBefore)) fail(ErrorCode::kInternal, "fault");
  };
  EXPECT_THROW(engine.generate(text_of(model(), kVictimPrompt, 1), sampled(50)), Error);
  faults().before_forward = nullptr;
  EXPECT_EQ(engine.generate(text_of(model(), kVictimPrompt, 1), sampled(5)).n_reused_tokens, 0);
  EXPECT_EQ(engine.generate(text_of(model(), kVictimPrompt, 1), sampled(5)).n_reused_tokens,
            kVictimPrompt - 1);
}

// The callbacks are a layer over what step() returns.
TEST_F(EngineFaults, StepsReturnWhatCallbacksSee) {
  Engine engine(model(), kOptions);
  std::vector<std::int32_t> seen;
  std::vector<std::int32_t> returned;
  const auto id = engine.submit(text_of(model(), 20, 1), sampled(9), [&](const TokenEvent& event) {
    seen.push_back(event.token.id);
    return true;
  });
  const auto cancelled = engine.submit(text_of(model(), 5, 1), sampled(9));
  engine.cancel(cancelled);
  std::optional<FinishReason> reason;
  bool saw_cancelled = false;
  while (engine.has_work())
    for (const StepOutput& out : engine.step()) {
      if (out.id == cancelled) {
        EXPECT_EQ(out.finish_reason, FinishReason::kCancelled);
        saw_cancelled = true;
        continue;
      }
      EXPECT_EQ(out.id, id);
      for (const TokenEvent& event : out.events) returned.push_back(event.token.id);
      if (out.finish_reason) reason = out.finish_reason;
    }
  EXPECT_TRUE(saw_cancelled);
  EXPECT_EQ(reason, FinishReason::kLength);
  EXPECT_EQ(returned, seen);
  EXPECT_EQ(engine.take_result(id).value().token_ids, seen);
}

}  // namespace
}  // namespace triptych
