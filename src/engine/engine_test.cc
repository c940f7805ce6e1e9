// The engine on the model that ships: answers, stops, cancels, batches; the same tokens for any number of
// threads.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/memory_pool.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/allocation_counter.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

const std::string kModel = test::source_path("assets/models/scenes-llava");
const std::string kScenes = test::source_path("assets/eval/scenes/");

MediaInput picture(const std::string& name) {
  const auto file = MappedFile::open(kScenes + name);
  return {.frames = {decode_image(file->bytes(), {}, name)}, .is_video = false, .frames_per_s = 0};
}

ChatRequest question(std::string text, std::vector<std::string> pictures) {
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  for (const std::string& name : pictures) {
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    out.media.push_back(picture(name));
  }
  message.parts.push_back({ContentPart::Kind::kText, std::move(text)});
  out.messages.push_back(std::move(message));
  return out;
}

class EngineTest : public testing::Test {
 protected:
  static LoadedModel& model() {
    static const std::unique_ptr<LoadedModel> loaded = LoadedModel::open(kModel, {.n_threads = 2});
    return *loaded;
  }
  static SamplingParams greedy(std::int64_t max_tokens = 0) {
    SamplingParams out;
    out.max_tokens = max_tokens;
    return out;
  }
};

TEST_F(EngineTest, AnswersAboutThePicture) {
  Engine engine(model());
  EXPECT_EQ(engine.generate(model().prepare(question("Which shape is orange?", {"0000.png"})), greedy()).text,
            "square");
  EXPECT_EQ(
      engine.generate(model().prepare(question("Is the triangle small or large?", {"0000.png"})), greedy())
          .text,
      "small");
}

TEST_F(EngineTest, StreamedTextIsTheWholeText) {
  Engine engine(model());
  std::string streamed;
  const auto result = engine.generate(model().prepare(question("Describe the image.", {"0000.png"})),
                                      greedy(), [&](const TokenEvent& event) {
                                        streamed += event.text;
                                        return true;
                                      });
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_THAT(result.text, testing::HasSubstr("triangle"));
}

TEST_F(EngineTest, SameTokensForAnyNumberOfThreads) {
  std::vector<std::vector<std::int32_t>> all;
  for (const int n_threads : {1, 2, 3, 5}) {
    const auto own = LoadedModel::open(kModel, {.n_threads = n_threads});
    Engine engine(*own);
    SamplingParams params = greedy(24);
    params.temperature = 1.5F;
    params.seed = 11;
    params.ignore_eos = true;
    all.push_back(
        engine.generate(own->prepare(question("Describe the image.", {"0000.png"})), params).token_ids);
    all.back().push_back(-1);
    const auto second =
        engine.generate(own->prepare(question("Describe the image.", {"0000.png"})), greedy()).token_ids;
    all.back().insert(all.back().end(), second.begin(), second.end());
  }
  for (const auto& ids : all) EXPECT_EQ(ids, all.front());
}

TEST_F(EngineTest, LimitsStopsAndCancel) {
  Engine engine(model());
  const auto ask = [&] { return model().prepare(question("Describe the image.", {"0000.png"})); };
  const auto full = engine.generate(ask(), greedy());
  const auto three = engine.generate(ask(), greedy(3));
  EXPECT_EQ(three.finish_reason, FinishReason::kLength);
  EXPECT_EQ(three.token_ids, std::vector<std::int32_t>(full.token_ids.begin(), full.token_ids.begin() + 3));

  SamplingParams stop = greedy();
  stop.stop = {" at the"};
  const auto stopped = engine.generate(ask(), stop);
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.stop_string, " at the");
  EXPECT_EQ(stopped.text, full.text.substr(0, full.text.find(" at the")));

  SamplingParams stop_id = greedy();
  stop_id.stop_token_ids = {full.token_ids[4]};
  EXPECT_LE(engine.generate(ask(), stop_id).token_ids.size(), 4U);

  int n = 0;
  const auto cancelled = engine.generate(ask(), greedy(), [&](const TokenEvent&) { return ++n < 2; });
  EXPECT_EQ(cancelled.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled.token_ids.size(), 2U);

  SamplingParams ignore = greedy(40);
  ignore.ignore_eos = true;
  EXPECT_EQ(engine.generate(ask(), ignore).token_ids.size(), 40U);
}

TEST_F(EngineTest, ContextIsCheckedWithNumbers) {
  PreparedRequest request = model().prepare(question("Describe the image.", {"0000.png"}));
  const auto n = static_cast<std::int64_t>(request.layout.input_ids.size());
  Engine small(model(), {.max_context_tokens = n});
  try {
    small.submit(std::move(request), greedy());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextLength);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr(std::to_string(n)), testing::HasSubstr("tokens")));
  }
  Engine fits(model(), {.max_context_tokens = n + 2});
  const auto result = fits.generate(model().prepare(question("Describe the image.", {"0000.png"})), greedy());
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.token_ids.size(), 2U);
  EXPECT_THROW(Engine(model(), {.max_context_tokens = 1 << 30}), Error);
}

TEST_F(EngineTest, BatchedAnswersEqualAnswersAlone) {
  const char* texts[] = {"Which shape is orange?", "Describe the image.", "How many shapes are there?",
                         "Is the triangle small or large?"};
  const char* pictures[] = {"0000.png", "0001.png", "0002.png", "0000.png"};
  std::vector<std::vector<std::int32_t>> alone;
  for (int i = 0; i < 4; ++i) {
    Engine engine(model());
    alone.push_back(engine.generate(model().prepare(question(texts[i], {pictures[i]})), greedy()).token_ids);
  }
  // A small step budget: prompts are prefilled in pieces while others decode.
  Engine engine(model(), {.kv_cache_tokens = 2048, .max_batch_tokens = 10, .max_sequences = 3});
  std::vector<Engine::RequestId> ids;
  for (int i = 0; i < 4; ++i)
    ids.push_back(engine.submit(model().prepare(question(texts[i], {pictures[i]})), greedy()));
  while (engine.has_work()) engine.step();
  for (std::size_t i = 0; i < 4; ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->token_ids, alone[i]) << texts[i];
  }
}

TEST_F(EngineTest, PlaceholdersOfARawPromptMustMatchThePictures) {
  const auto fails_with = [&](const char* prompt, std::vector<std::string> names) {
    std::vector<MediaInput> media;
    for (const auto& name : names) media.push_back(picture(name));
    try {
      model().prepare_prompt(prompt, media);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(fails_with("<image> a <image>", {"0000.png"}),
              testing::HasSubstr("2 image placeholders but 1 image"));
  EXPECT_THAT(fails_with("<image>", {"0000.png", "0001.png"}),
              testing::HasSubstr("1 image placeholder but 2 images"));
  EXPECT_THAT(fails_with("none", {"0000.png"}), testing::HasSubstr("0 image placeholders but 1 image"));
  EXPECT_EQ(fails_with("<image><image>", {"0000.png", "0001.png"}), "");
  EXPECT_EQ(fails_with("What is this? <image>", {"0000.png"}), "");
}

TEST_F(EngineTest, TypedPlaceholdersStayText) {
  const PreparedRequest typed = model().prepare(question("Say <image> and </s>.", {"0000.png"}));
  EXPECT_EQ(typed.layout.runs.size(), 1U);
  EXPECT_EQ(std::count(typed.token_ids.begin(), typed.token_ids.end(), model().info().image_token_id), 1);
  EXPECT_EQ(std::count(typed.token_ids.begin(), typed.token_ids.end(), 2), 0);
}

TEST_F(EngineTest, ASteadyStepTakesNoMemoryFromTheArena) {
  Engine engine(model());
  SamplingParams params = greedy(60);
  params.ignore_eos = true;
  engine.submit(model().prepare(question("Describe the image.", {"0000.png"})), params);
  for (int i = 0; i < 4; ++i) engine.step();
  const std::int64_t warm = engine.n_arena_allocations();
  while (engine.has_work()) engine.step();
  EXPECT_EQ(engine.n_arena_allocations(), warm);
}

// Loaded with check_numerics, an engine names the part in which the first NaN appears, and answers the same.
TEST_F(EngineTest, NumericsAreCheckedWhenTheModelWasLoadedSo) {
  const auto checking = LoadedModel::open(kModel, {.n_threads = 2, .check_numerics = true});
  Engine engine(*checking, {.vision_embedding_cache_bytes = std::size_t{1} << 20});
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(
        engine.generate(checking->prepare(question("Which shape is orange?", {"0000.png"})), greedy()).text,
        "square");
  PreparedRequest bad = checking->prepare(question("Which shape is orange?", {"0001.png"}));
  bad.media[0].pixels.f32()[3] = std::numeric_limits<float>::quiet_NaN();
  Engine other(*checking);
  try {
    other.generate(std::move(bad), greedy());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("vision: input"), testing::HasSubstr("not finite"),
                               testing::HasSubstr("the first nan at")));
  }
}

TEST_F(EngineTest, StepsLeaveTheCallersDenormalsAlone) {
  Engine engine(model());
  ASSERT_FALSE(flushes_denormals());
  bool inside = false;
  engine.generate(model().prepare(question("Which shape is orange?", {"0000.png"})), greedy(),
                  [&](const TokenEvent&) {
                    inside = flushes_denormals();
                    return true;
                  });
  EXPECT_TRUE(inside);
  EXPECT_FALSE(flushes_denormals());
}

TEST_F(EngineTest, AWarmStepAllocatesNothing) {
  Engine engine(model());
  engine.forward_prompt(model().prepare(question("Describe the image.", {"0000.png"})), nullptr);
  for (int i = 0; i < 4; ++i) engine.forward_next(300 + i, nullptr);
  const long before = n_allocations();
  const std::int64_t of_pool = MemoryPool::process().stats().n_allocations;
  for (int i = 0; i < 32; ++i) engine.forward_next(300 + i, nullptr);
  EXPECT_EQ(n_allocations(), before);
  EXPECT_EQ(MemoryPool::process().stats().n_allocations, of_pool);
  allocate_once();
  EXPECT_GT(n_allocations(), before) << "the counter does not count";
}

TEST_F(EngineTest, KeysAndValuesTakeMemoryPageByPageAndGiveItBack) {
  Engine engine(model(), {.kv_cache_tokens = 1 << 16});
  const auto granted = [] { return MemoryPool::process().stats().granted_bytes; };
  SamplingParams params = greedy(150);
  params.ignore_eos = true;
  engine.generate(model().prepare(question("Describe the image.", {"0000.png"})), params);
  const std::size_t idle = granted();
  EXPECT_LT(idle, engine.kv_cache_bytes());
  engine.submit(model().prepare(question("Describe the image.", {"0000.png"})), params);
  for (int i = 0; i < 3; ++i) engine.step();
  const std::size_t early = granted();
  for (int i = 0; i < 130; ++i) engine.step();
  ASSERT_TRUE(engine.has_work());
  const std::size_t late = granted();
  EXPECT_GT(early, idle);
  EXPECT_GT(late, early) << "130 tokens more take two pages more";
  while (engine.has_work()) engine.step();
  EXPECT_EQ(granted(), idle);
}

// The whole step, sampling and text included: only what the answer itself needs may grow, and that doubles.
TEST_F(EngineTest, AWarmStepWithSamplingAllocatesAlmostNothing) {
  Engine engine(model());
  SamplingParams params = greedy(200);
  params.ignore_eos = true;
  params.temperature = 0.8F;
  params.top_p = 0.9F;
  params.repetition_penalty = 1.1F;
  params.seed = 1;
  engine.submit(model().prepare(question("Describe the image.", {"0000.png"})), params);
  for (int i = 0; i < 40; ++i) engine.step();
  const long before = n_allocations();
  for (int i = 0; i < 100; ++i) engine.step();
  ASSERT_TRUE(engine.has_work());
  EXPECT_LE(n_allocations() - before, 6);
}

// ---- what is kept for later requests

EngineOptions keeping(KvDType dtype = KvDType::kF32) {
  EngineOptions out;
  out.kv_cache_dtype = dtype;
  out.prefix_cache_bytes = std::size_t{1} << 30;
  out.vision_embedding_cache_bytes = std::size_t{16} << 20;
  return out;
}

// Three turns of a conversation, the engine's answers in it.
struct Turn {
  GenerationResult result;
  std::int64_t n_encoded;
};
std::vector<Turn> converse(LoadedModel& model, Engine* engine) {
  const char* texts[] = {"Describe the image.", "Which shape is orange?", "How many shapes are there?"};
  SamplingParams params;
  params.max_tokens = 40;
  params.n_logprobs = 0;
  ChatRequest request;
  std::vector<Turn> out;
  for (int turn = 0; turn < 3; ++turn) {
    ChatRequest next = question(texts[turn], turn == 1   ? std::vector<std::string>{"0002.png"}
                                             : turn == 0 ? std::vector<std::string>{"0000.png"}
                                                         : std::vector<std::string>{});
    request.messages.push_back(next.messages[0]);
    request.media.insert(request.media.end(), next.media.begin(), next.media.end());
    std::unique_ptr<Engine> fresh;
    if (engine == nullptr)
      fresh = std::make_unique<Engine>(model, EngineOptions{.kv_cache_dtype = KvDType::kF32});
    Engine& use = engine == nullptr ? *fresh : *engine;
    out.push_back({use.generate(model.prepare(request), params), use.n_media_encoded()});
    request.messages.push_back(ChatMessage::text("assistant", out.back().result.text));
  }
  return out;
}

void expect_same_conversation(LoadedModel& model) {
  Engine engine(model, keeping());
  const std::vector<Turn> kept = converse(model, &engine);
  const std::vector<Turn> fresh = converse(model, nullptr);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(kept[i].result.token_ids, fresh[i].result.token_ids) << i;
    EXPECT_EQ(fresh[i].result.n_reused_tokens, 0) << i;
    ASSERT_EQ(kept[i].result.tokens.size(), fresh[i].result.tokens.size());
    for (std::size_t t = 0; t < kept[i].result.tokens.size(); ++t)
      EXPECT_NEAR(kept[i].result.tokens[t].logprob, fresh[i].result.tokens[t].logprob, 1e-4);
  }
  EXPECT_EQ(kept[0].result.n_reused_tokens, 0);
  // All of the first turn but perhaps the end of its answer, which the template may print differently.
  EXPECT_GE(kept[1].result.n_reused_tokens, kept[0].result.n_prompt_tokens);
  EXPECT_GE(kept[2].result.n_reused_tokens, kept[1].result.n_prompt_tokens);
  EXPECT_LT(kept[2].result.n_reused_tokens, kept[2].result.n_prompt_tokens);
  // Each picture once; an engine that keeps nothing encodes one, two and two.
  EXPECT_EQ(kept[0].n_encoded, 1);
  EXPECT_EQ(kept[1].n_encoded, 2);
  EXPECT_EQ(kept[2].n_encoded, 2);
  EXPECT_EQ(fresh[2].n_encoded, 2);
}

TEST_F(EngineTest, AConversationGoesOnWithWhatIsInTheCache) { expect_same_conversation(model()); }

TEST(EngineKeeps, AlsoWithThreePositionAxes) {
  const auto qwen = LoadedModel::open(test::source_path("assets/models/scenes-qwen2-vl"), {.n_threads = 2});
  expect_same_conversation(*qwen);
}

TEST_F(EngineTest, AnotherPictureIsNotTakenForTheFirst) {
  Engine engine(model(), keeping());
  const auto first =
      engine.generate(model().prepare(question("Describe the image.", {"0000.png"})), greedy());
  const PreparedRequest other = model().prepare(question("Describe the image.", {"0001.png"}));
  const std::int64_t before_picture = other.layout.runs[0].first_prompt_row;
  const auto second =
      engine.generate(model().prepare(question("Describe the image.", {"0001.png"})), greedy());
  EXPECT_EQ(second.n_reused_tokens, before_picture);
  EXPECT_EQ(engine.n_media_encoded(), 2);
  Engine fresh(model(), {.kv_cache_dtype = KvDType::kF32});
  EXPECT_EQ(
      second.token_ids,
      fresh.generate(model().prepare(question("Describe the image.", {"0001.png"})), greedy()).token_ids);
  EXPECT_NE(second.token_ids, first.token_ids);
  // The same request again: all but its last token is there.
  const auto again =
      engine.generate(model().prepare(question("Describe the image.", {"0001.png"})), greedy());
  EXPECT_EQ(again.n_reused_tokens, again.n_prompt_tokens - 1);
  EXPECT_EQ(again.token_ids, second.token_ids);
  EXPECT_EQ(engine.n_media_encoded(), 2);
}

TEST_F(EngineTest, KeptSequencesGiveWayToRequests) {
  // Room for one whole context only; each request reserves all of it.
  EngineOptions options = keeping();
  options.max_context_tokens = 192;
  options.kv_cache_tokens = 192;
  Engine engine(model(), options);
  std::vector<Engine::RequestId> ids;
  const char* pictures[] = {"0000.png", "0001.png", "0002.png", "0000.png", "0001.png"};
  for (const char* name : pictures)
    ids.push_back(engine.submit(model().prepare(question("Describe the image.", {name})), greedy()));
  engine.cancel(ids[3]);
  while (engine.has_work()) engine.step();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result.has_value()) << i;
    Engine fresh(model(), {.kv_cache_dtype = KvDType::kF32});
    EXPECT_EQ(result->finish_reason, i == 3 ? FinishReason::kCancelled : FinishReason::kStop);
    if (i != 3) {
      EXPECT_EQ(
          result->text,
          fresh.generate(model().prepare(question("Describe the image.", {pictures[i]})), greedy()).text);
    }
  }
  EXPECT_EQ(engine.n_media_encoded(), 3);  // the fifth is about the second's picture
  // And the parity path still finds an idle engine.
  EXPECT_NO_THROW(engine.forward_prompt(model().prepare(question("x", {"0000.png"})), nullptr));
}

TEST_F(EngineTest, TheVisualCacheHoldsWhatItMay) {
  EngineOptions options = keeping();
  options.prefix_cache_bytes = 0;
  const auto ask = [&](Engine& engine, const char* name) {
    return engine.generate(model().prepare(question("Which shape is orange?", {name})), greedy(3)).token_ids;
  };
  const std::size_t one_picture =
      64 * static_cast<std::size_t>(model().info().hidden_size) * sizeof(float);  // 64 tokens
  options.vision_embedding_cache_bytes = 2 * one_picture;
  Engine engine(model(), options);
  const auto first = ask(engine, "0000.png");
  ask(engine, "0001.png");
  EXPECT_EQ(ask(engine, "0000.png"), first);
  EXPECT_EQ(engine.n_media_encoded(), 2);
  ask(engine, "0002.png");  // 0001.png was not used for longest
  ask(engine, "0000.png");
  EXPECT_EQ(engine.n_media_encoded(), 3);
  ask(engine, "0001.png");
  EXPECT_EQ(engine.n_media_encoded(), 4);
  options.vision_embedding_cache_bytes = one_picture - 1;
  Engine small(model(), options);
  ask(small, "0000.png");
  EXPECT_EQ(ask(small, "0000.png"), first);
  EXPECT_EQ(small.n_media_encoded(), 2);
}

}  // namespace
}  // namespace triptych
