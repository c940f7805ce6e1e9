// Blocks are taken as sequences grow, shared where they begin alike, and given back by the youngest when
// there are none: answers stay what they are alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

LoadedModel& model() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 2});
  return *loaded;
}

PreparedRequest ask(const std::string& text, const std::string& name) {
  const auto file = MappedFile::open(test::source_path("assets/eval/scenes/") + name);
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  message.parts.push_back({ContentPart::Kind::kImage, ""});
  message.parts.push_back({ContentPart::Kind::kText, text});
  out.messages.push_back(std::move(message));
  out.media.push_back(
      {.frames = {decode_image(file->bytes(), {}, name)}, .is_video = false, .frames_per_s = 0});
  return model().prepare(out);
}

SamplingParams long_answer() {
  SamplingParams out;
  out.max_tokens = 90;
  out.ignore_eos = true;
  out.n_logprobs = 0;
  return out;
}

struct Question {
  const char* text;
  const char* picture;
};
constexpr Question kQuestions[] = {{"Describe the image.", "0000.png"},
                                   {"Which shape is orange?", "0001.png"},
                                   {"How many shapes are there?", "0002.png"},
                                   {"Describe the image.", "0003.png"}};

std::vector<GenerationResult> answers_alone() {
  std::vector<GenerationResult> out;
  for (const Question& q : kQuestions) {
    Engine engine(model(), {.kv_cache_dtype = KvDType::kF32});
    out.push_back(engine.generate(ask(q.text, q.picture), long_answer()));
  }
  return out;
}

void expect_same(const GenerationResult& a, const GenerationResult& b) {
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < a.tokens.size(); ++i)
    EXPECT_NEAR(a.tokens[i].logprob, b.tokens[i].logprob, 1e-4) << i;
}

TEST(Preemption, AnswersAreThoseOfSequencesThatRunAlone) {
  const std::vector<GenerationResult> alone = answers_alone();
  // Four begin in eight blocks; each wants three in the end.
  Engine engine(model(), {.max_context_tokens = 192,
                          .kv_cache_tokens = 512,
                          .max_batch_tokens = 48,
                          .max_sequences = 4,
                          .kv_cache_dtype = KvDType::kF32});
  std::vector<Engine::RequestId> ids;
  for (const Question& q : kQuestions) ids.push_back(engine.submit(ask(q.text, q.picture), long_answer()));
  std::vector<std::size_t> finished;
  while (engine.has_work())
    for (const StepOutput& out : engine.step())
      if (out.finish_reason)
        finished.push_back(static_cast<std::size_t>(std::find(ids.begin(), ids.end(), out.id) - ids.begin()));
  EXPECT_GT(engine.n_preemptions(), 0);
  EXPECT_EQ(finished, (std::vector<std::size_t>{0, 1, 2, 3})) << "the youngest give way";
  EXPECT_EQ(engine.n_media_encoded(), 4) << "what the tower made is kept";
  for (std::size_t i = 0; i < ids.size(); ++i) expect_same(engine.take_result(ids[i]).value(), alone[i]);
}

TEST(Preemption, RoomForOneContextServesAll) {
  const std::vector<GenerationResult> alone = answers_alone();
  Engine engine(model(),
                {.max_context_tokens = 192, .kv_cache_tokens = 192, .kv_cache_dtype = KvDType::kF32});
  std::vector<Engine::RequestId> ids;
  for (const Question& q : kQuestions) ids.push_back(engine.submit(ask(q.text, q.picture), long_answer()));
  engine.cancel(ids[2]);
  while (engine.has_work()) engine.step();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const GenerationResult result = engine.take_result(ids[i]).value();
    if (i == 2) {
      EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
    } else {
      expect_same(result, alone[i]);
    }
  }
}

// A sequence that began with another's keys and values never saw its picture encoded; when it is preempted,
// and they are gone, it has to.
TEST(Preemption, AfterASharedBeginningThePictureIsEncodedWhenItIsNeeded) {
  const std::vector<GenerationResult> alone = answers_alone();
  Engine engine(model(), {.max_context_tokens = 320,
                          .kv_cache_tokens = 320,
                          .kv_cache_dtype = KvDType::kF32,
                          .prefix_cache_bytes = std::size_t{1} << 30});
  SamplingParams one_token = long_answer();
  one_token.max_tokens = 1;
  engine.generate(ask(kQuestions[1].text, kQuestions[1].picture), one_token);
  EXPECT_EQ(engine.n_media_encoded(), 1);
  SamplingParams whole_cache = long_answer();  // at its end the older one has every block
  whole_cache.max_tokens = 200;
  const auto old = engine.submit(ask(kQuestions[0].text, kQuestions[0].picture), whole_cache);
  engine.step();
  const auto young = engine.submit(ask(kQuestions[1].text, kQuestions[1].picture), long_answer());
  engine.step();
  const std::int64_t n_before = engine.n_media_encoded();
  while (engine.has_work()) engine.step();
  const GenerationResult result = engine.take_result(young).value();
  Engine other(model(), {.kv_cache_dtype = KvDType::kF32});
  expect_same(engine.take_result(old).value(),
              other.generate(ask(kQuestions[0].text, kQuestions[0].picture), whole_cache));
  expect_same(result, alone[1]);
  EXPECT_EQ(n_before, 2) << "the first one's, not the second's";
  EXPECT_GT(result.n_reused_tokens, 64);
  EXPECT_GT(engine.n_preemptions(), 0);
  EXPECT_EQ(engine.n_media_encoded(), 3);
}

TEST(SharedBeginnings, SeveralSequencesAtOnceHoldOneCopy) {
  const std::vector<GenerationResult> alone = answers_alone();
  Engine engine(model(), {.kv_cache_dtype = KvDType::kF32, .prefix_cache_bytes = std::size_t{1} << 30});
  SamplingParams one_token = long_answer();
  one_token.max_tokens = 1;
  engine.generate(ask(kQuestions[0].text, kQuestions[0].picture), one_token);
  std::vector<Engine::RequestId> ids;
  for (int i = 0; i < 3; ++i)
    ids.push_back(engine.submit(ask(kQuestions[0].text, kQuestions[0].picture), long_answer()));
  while (engine.has_work()) engine.step();
  for (const Engine::RequestId id : ids) {
    const GenerationResult result = engine.take_result(id).value();
    EXPECT_EQ(result.n_reused_tokens, result.n_prompt_tokens - 1);
    expect_same(result, alone[0]);
  }
  EXPECT_EQ(engine.n_media_encoded(), 1);
}

// Of four blocks two are kept and two are another's: the request that shares the former waits for the latter.
TEST(SharedBeginnings, AreKeptForARequestThatWaitsForRoom) {
  const std::vector<GenerationResult> alone = answers_alone();
  Engine engine(model(), {.max_context_tokens = 192,
                          .kv_cache_tokens = 256,
                          .kv_cache_dtype = KvDType::kF32,
                          .prefix_cache_bytes = std::size_t{1} << 30});
  SamplingParams one_token = long_answer();
  one_token.max_tokens = 1;
  engine.generate(ask(kQuestions[1].text, kQuestions[1].picture), one_token);
  const auto other = engine.submit(ask(kQuestions[0].text, kQuestions[0].picture), one_token);
  const auto sharing = engine.submit(ask(kQuestions[1].text, kQuestions[1].picture), long_answer());
  while (engine.has_work()) engine.step();
  EXPECT_TRUE(engine.take_result(other).has_value());
  const GenerationResult result = engine.take_result(sharing).value();
  EXPECT_GT(result.n_reused_tokens, 64);
  expect_same(result, alone[1]);
}

TEST(Engine, TheSequenceOfForwardPromptGivesWayToRequests) {
  const std::vector<GenerationResult> alone = answers_alone();
  Engine engine(model(),
                {.max_context_tokens = 192, .kv_cache_tokens = 192, .kv_cache_dtype = KvDType::kF32});
  engine.forward_prompt(ask(kQuestions[1].text, kQuestions[1].picture), nullptr);
  expect_same(engine.generate(ask(kQuestions[0].text, kQuestions[0].picture), long_answer()), alone[0]);
}

}  // namespace
}  // namespace triptych
