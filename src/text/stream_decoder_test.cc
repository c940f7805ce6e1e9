// Streams never split a character, lose or repeat text: chosen ids, as in the reports of users.
#include "text/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "support/source_dir.h"
#include "text/byte_level.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

using Ids = std::vector<std::int32_t>;

// A byte-level vocabulary of exactly these byte strings.
std::unique_ptr<Tokenizer> byte_level_tokenizer(const std::vector<std::string>& tokens) {
  Json vocab = Json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string content;
    byte_level::append_encoded(content, tokens[i]);
    vocab[content] = i;
  }
  std::string first;
  byte_level::append_encoded(first, tokens[0]);
  const Json document = {{"model", {{"type", "WordLevel"}, {"unk_token", first}, {"vocab", vocab}}},
                         {"decoder", {{"type", "ByteLevel"}}}};
  return Tokenizer::from_json(document.dump(), "byte_level");
}

std::unique_ptr<Tokenizer> fallback_tokenizer() {
  return Tokenizer::from_directory(test::source_path("tests/data/tokenizers/llava"));
}

struct Streamed {
  std::string text;
  std::vector<std::string> chunks;
};

Streamed run(const Tokenizer& tokenizer, const Ids& ids, const Ids& prompt = {}) {
  StreamDecoder decoder(tokenizer, {}, prompt);
  Streamed out;
  for (const std::int32_t id : ids) out.chunks.push_back(decoder.push(id));
  out.chunks.push_back(decoder.finish());
  for (const auto& chunk : out.chunks) {
    EXPECT_TRUE(utf8::is_valid(chunk));
    out.text += chunk;
  }
  return out;
}

void expect_all(const std::vector<std::string>& tokens, const std::string& text) {
  const auto tokenizer = byte_level_tokenizer(tokens);
  Ids ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) ids.push_back(static_cast<std::int32_t>(i));
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(run(*tokenizer, ids).text, text);
}

TEST(StreamDecoder, CharactersOverSeveralTokens) {
  expect_all({"\xF0\x9F", "\x98\x80"}, "\U0001F600");
  expect_all({"\xF0", "\x9F\x98", "\x80"}, "\U0001F600");
  expect_all({"\xF0", "\x9F", "\x98", "\x80"}, "\U0001F600");
  expect_all({"a\xF0\x9F\x91", "\xA8\xE2", "\x80\x8D\xF0\x9F", "\x91\xA9!"}, "a\U0001F468\u200D\U0001F469!");
  expect_all({"\xE4\xBD", "\xA0"}, "\u4F60");
  expect_all({"\xC4", "\x8F"}, "\u010F");
}

TEST(StreamDecoder, InvalidBytesAndCutTails) {
  expect_all({"a", "\xFF", "b"}, "a\uFFFDb");
  expect_all({"a\xE4", "b"}, "a\uFFFDb");
  expect_all({"x", "\xE4\xBD"}, "x\uFFFD");
  expect_all({"x", "\xE4", "\xBD"}, "x\uFFFD");
  expect_all({"\xF0\x9F", "\x98"}, "\uFFFD");
}

TEST(StreamDecoder, FallbackBytes) {
  const auto tokenizer = fallback_tokenizer();
  const auto byte = [&](int b) { return b + 3; };  // <0x00> has id 3
  const Ids emoji = {byte(0xF0), byte(0x9F), byte(0x98), byte(0x80)};
  const auto streamed = run(*tokenizer, emoji);
  EXPECT_EQ(streamed.text, "\U0001F600");
  EXPECT_THAT(streamed.chunks, testing::ElementsAre("", "", "", "\U0001F600", ""));
  const Ids cut = {byte('x'), byte(0xE4), byte(0xBD)};
  EXPECT_EQ(tokenizer->decode(cut), "x\uFFFD");
  EXPECT_EQ(run(*tokenizer, cut).text, "x\uFFFD");
  // Only what can never become valid is replaced.
  const Ids mixed = {byte(0xE4), byte(0xBD), byte(0xA0), byte(0xFF), byte('y')};
  EXPECT_EQ(tokenizer->decode(mixed), "\u4F60\uFFFDy");
  EXPECT_EQ(run(*tokenizer, mixed).text, "\u4F60\uFFFDy");
}

TEST(StreamDecoder, LeadingSpaceBelongsToTheStart) {
  const auto tokenizer = fallback_tokenizer();
  const auto the = *tokenizer->token_to_id("\u2581the");
  EXPECT_EQ(run(*tokenizer, {the, the}).text, "the the");
  // Behind a prompt the space is text.
  EXPECT_EQ(run(*tokenizer, {the}, {the}).text, " the");
}

TEST(StreamDecoder, PromptThatEndsInsideACharacter) {
  const auto tokenizer = byte_level_tokenizer({"hi \xE4", "\xBD\xA0", "!", "\xFF"});
  const auto streamed = run(*tokenizer, {1, 2}, {0});
  EXPECT_EQ(streamed.text, "\u4F60!");
  // What the prompt left unfinished for good is the prompt's.
  EXPECT_EQ(run(*tokenizer, {2}, {0}).text, "!");
}

TEST(StreamDecoder, NoChunkRepeatsThePrompt) {
  // This decoder holds a token back until it knows whether it is the last.
  const Json document = {
      {"model", {{"type", "WordLevel"}, {"unk_token", "a</w>"}, {"vocab", {{"a</w>", 0}, {"b", 1}}}}},
      {"decoder", {{"type", "BPEDecoder"}, {"suffix", "</w>"}}}};
  const auto tokenizer = Tokenizer::from_json(document.dump(), "held");
  EXPECT_EQ(tokenizer->decode(Ids{0, 0, 1}), "a a b");
  EXPECT_EQ(run(*tokenizer, {0, 1}, {0}).text, " a b");
}

TEST(StreamDecoder, FinishStartsAnew) {
  const auto tokenizer = fallback_tokenizer();
  const auto the = *tokenizer->token_to_id("\u2581the");
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(the) + decoder.finish(), "the");
  EXPECT_EQ(decoder.push(the) + decoder.finish(), "the");
  EXPECT_THROW(decoder.push(-1), Error);
  EXPECT_THROW(decoder.push(1 << 30), Error);
}

TEST(StreamDecoder, RandomIdsStreamAsTheyDecode) {
  std::mt19937 random(1);
  for (const char* name : {"llava", "qwen2_vl", "fuyu", "qformer", "qwen_vl", "spm_unigram"}) {
    const auto tokenizer = Tokenizer::from_directory(test::source_path("tests/data/tokenizers/") + name);
    for (int round = 0; round < 300; ++round) {
      Ids ids(random() % 12);
      for (auto& id : ids)
        id = static_cast<std::int32_t>(random() % static_cast<unsigned>(tokenizer->vocab_size()));
      const std::string whole = tokenizer->decode(ids);
      EXPECT_EQ(run(*tokenizer, ids).text, whole) << name;
      // With a prompt: what the prompt alone had completed, then the rest.
      const std::size_t cut = ids.empty() ? 0 : random() % ids.size();
      const Ids prompt(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
      const Ids rest(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end());
      const std::string tail = run(*tokenizer, rest, prompt).text;
      EXPECT_TRUE(whole.ends_with(tail)) << name;
    }
  }
}

}  // namespace
}  // namespace triptych
