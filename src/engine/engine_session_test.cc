// A conversation that is saved and loaded goes on as if nothing had happened: the same answer, its beginning
// not computed again, no picture encoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "io/test_files.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

LoadedModel& llava() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 2});
  return *loaded;
}
LoadedModel& qwen2_vl() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-qwen2-vl"), {.n_threads = 2});
  return *loaded;
}

EngineOptions keeping(KvDType dtype) {
  EngineOptions out;
  out.kv_cache_dtype = dtype;
  out.prefix_cache_bytes = std::numeric_limits<std::size_t>::max();
  return out;
}

void say(ChatRequest& conversation, const std::string& text, const std::string& picture = "") {
  ChatMessage message;
  message.role = "user";
  if (!picture.empty()) {
    const auto file = MappedFile::open(test::source_path("assets/eval/scenes/") + picture);
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    conversation.media.push_back(
        {.frames = {decode_image(file->bytes(), {}, picture)}, .is_video = false, .frames_per_s = 0});
  }
  message.parts.push_back({ContentPart::Kind::kText, text});
  conversation.messages.push_back(std::move(message));
}

SamplingParams greedy() {
  SamplingParams out;
  out.max_tokens = 40;
  out.n_logprobs = 2;
  return out;
}

GenerationResult answer(Engine& engine, LoadedModel& model, ChatRequest& conversation) {
  GenerationResult out = engine.generate(model.prepare(conversation), greedy());
  conversation.messages.push_back(ChatMessage::text("assistant", out.text));
  return out;
}

// Bit for bit.
void expect_same(const GenerationResult& a, const GenerationResult& b) {
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.n_reused_tokens, b.n_reused_tokens);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob) << i;
    for (std::size_t k = 0; k < a.tokens[i].top.size(); ++k)
      EXPECT_EQ(a.tokens[i].top[k].logprob, b.tokens[i].top[k].logprob) << i;
  }
}

void expect_round_trip(LoadedModel& model, KvDType dtype) {
  const test::TempDir folder;
  const auto path = folder.path() / "chat.session";
  ChatRequest conversation;
  Engine first(model, keeping(dtype));
  say(conversation, "Describe the image.", "0000.png");
  answer(first, model, conversation);
  say(conversation, "Which shape is orange?", "0002.png");
  answer(first, model, conversation);
  const std::int64_t n_saved = first.save_session(path, conversation);
  EXPECT_GT(n_saved, kBlockTokens);

  Engine second(model, keeping(dtype));
  std::int64_t n_restored = 0;
  ChatRequest loaded = second.load_session(path, &n_restored);
  EXPECT_EQ(n_restored, n_saved);
  ASSERT_EQ(loaded.messages.size(), 4U);
  say(loaded, "How many shapes are there?");
  say(conversation, "How many shapes are there?");
  const GenerationResult after_load = answer(second, model, loaded);
  EXPECT_EQ(second.n_media_encoded(), 0);
  EXPECT_GE(after_load.n_reused_tokens, n_saved);
  expect_same(after_load, answer(first, model, conversation));
  // The same file again, from the loaded one.
  EXPECT_GT(second.save_session(path, loaded), n_saved);
}

TEST(EngineSession, GoesOnAsIfNothingHadHappened) { expect_round_trip(llava(), KvDType::kF16); }
TEST(EngineSession, WithThreePositionAxes) { expect_round_trip(qwen2_vl(), KvDType::kF32); }
TEST(EngineSession, WithCachesOfFewBits) {
  for (const KvDType dtype : {KvDType::kBF16, KvDType::kInt8, KvDType::kFp8, KvDType::kInt4})
    expect_round_trip(llava(), dtype);
}

class EngineSessionFile : public testing::Test {
 protected:
  void SetUp() override {
    Engine engine(llava(), keeping(KvDType::kF16));
    say(conversation_, "Describe the image.", "0000.png");
    answer(engine, llava(), conversation_);
    engine.save_session(path_, conversation_);
  }
  // Loading fails so, and the engine is as before.
  static void expect_refused(Engine& engine, const std::filesystem::path& path, ErrorCode code,
                             const std::string& part) {
    const KvCacheStats before = engine.kv_cache_stats();
    try {
      engine.load_session(path);
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr(part), testing::HasSubstr(path.filename())));
    }
    EXPECT_EQ(engine.kv_cache_stats().n_free_blocks, before.n_free_blocks);
    EXPECT_EQ(engine.kv_cache_stats().n_cached_blocks, before.n_cached_blocks);
  }

  test::TempDir folder_;
  std::filesystem::path path_ = folder_.path() / "chat.session";
  ChatRequest conversation_;
};

TEST_F(EngineSessionFile, OthersAreRefused) {
  Engine engine(llava(), keeping(KvDType::kF16));
  expect_refused(engine, folder_.path() / "absent", ErrorCode::kNotFound, "absent");
  const std::string whole = read_text_file(path_);
  const auto other = folder_.path() / "other";
  write_text_file(other, whole.substr(0, whole.size() - 1));
  expect_refused(engine, other, ErrorCode::kInvalidFile, "cut off");
  std::string damaged = whole;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  write_text_file(other, damaged);
  expect_refused(engine, other, ErrorCode::kInvalidFile, "checksum");
  write_text_file(other, "something else");
  expect_refused(engine, other, ErrorCode::kInvalidFile, "no saved session");
  Engine bf16(llava(), keeping(KvDType::kBF16));
  expect_refused(bf16, path_, ErrorCode::kUnsupported, "fp16, this cache's are bf16");
  Engine qwen(qwen2_vl(), keeping(KvDType::kF16));
  expect_refused(qwen, path_, ErrorCode::kUnsupported, "Qwen2VL");
  const auto int8 = LoadedModel::open(
      test::source_path("assets/models/scenes-llava"),
      {.n_threads = 1,
       .weight_formats = {.language = QuantFormat::parse("int8"), .vision = {}, .lm_head = {}}});
  Engine quantized(*int8, keeping(KvDType::kF16));
  expect_refused(quantized, path_, ErrorCode::kUnsupported, "another model");
  EngineOptions short_context = keeping(KvDType::kF16);
  short_context.max_context_tokens = 40;
  Engine small(llava(), short_context);
  expect_refused(small, path_, ErrorCode::kContextLength, "40");
}

// The conversation is there, and is computed again.
TEST_F(EngineSessionFile, WithoutAPrefixCacheTheConversationGoesOnAllTheSame) {
  Engine engine(llava(), {.kv_cache_dtype = KvDType::kF16});
  std::int64_t n_restored = -1;
  ChatRequest loaded = engine.load_session(path_, &n_restored);
  EXPECT_EQ(n_restored, 0);
  say(loaded, "Which shape is orange?");
  const GenerationResult result = answer(engine, llava(), loaded);
  EXPECT_EQ(engine.n_media_encoded(), 1);
  Engine fresh(llava(), {.kv_cache_dtype = KvDType::kF16});
  say(conversation_, "Which shape is orange?");
  EXPECT_EQ(result.text, answer(fresh, llava(), conversation_).text);
  EXPECT_EQ(engine.save_session(path_, loaded), 0);
}

TEST_F(EngineSessionFile, AnEmptyConversationIsOne) {
  Engine engine(llava(), keeping(KvDType::kF16));
  const auto path = folder_.path() / "empty";
  EXPECT_EQ(engine.save_session(path, {}), 0);
  EXPECT_TRUE(engine.load_session(path).messages.empty());
}

// What others left in the memory of a page that is not full stays there.
TEST_F(EngineSessionFile, EqualConversationsGiveEqualFiles) {
  Engine engine(llava(), keeping(KvDType::kF16));
  ChatRequest other;
  say(other, "How many shapes are there?", "0001.png");
  answer(engine, llava(), other);
  answer(engine, llava(), other);
  ChatRequest same;
  say(same, "Describe the image.", "0000.png");
  answer(engine, llava(), same);
  const auto path = folder_.path() / "same";
  engine.save_session(path, same);
  EXPECT_TRUE(read_text_file(path) == read_text_file(path_));
}

}  // namespace
}  // namespace triptych
