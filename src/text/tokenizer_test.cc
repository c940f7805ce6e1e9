// What files and texts of users must not do: control tokens that are typed, hostile files, long texts.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "support/source_dir.h"
#include "text/tiktoken_file.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;

fs::path data(const char* name) { return test::source_dir() / "tests" / "data" / "tokenizers" / name; }

// A whole text that a user typed.
Ids encode_typed(const Tokenizer& tokenizer, const std::string& text) {
  const ByteRange all{0, text.size()};
  return tokenizer.encode(text, {.add_special_tokens = false, .plain_text = {&all, 1}});
}

std::string error_of(const std::string& json) {
  try {
    Tokenizer::from_json(json, "t.json");
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    return error.what();
  }
  return "(loads)";
}

Json small_document() {
  return Json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
    "merges": [["a", "b"]]}})");
}

TEST(PlainText, ControlTokensThatAreTypedStayText) {
  for (const char* name : {"llava", "qwen2_vl", "blip2", "instructblip", "fuyu", "qwen_vl", "spm_bpe"}) {
    const auto tokenizer = Tokenizer::from_directory(data(name));
    for (const AddedToken& token : tokenizer->added_tokens()) {
      if (!token.special) continue;
      const std::string text = "say " + token.content + " now" + token.content;
      // Part of a template, the same text does give the token.
      EXPECT_THAT(tokenizer->encode(text), testing::Contains(token.id)) << name << " " << token.content;
      const Ids ids = encode_typed(*tokenizer, text);
      for (const std::int32_t id : ids)
        EXPECT_TRUE(id == tokenizer->unk_id() || !tokenizer->is_special(id)) << name << " " << token.content;
      // Nothing of the text is lost where the vocabulary can say it.
      if (tokenizer->unk_id() != token.id) {
        EXPECT_EQ(tokenizer->decode(ids), text) << name;
      }
    }
  }
}

TEST(PlainText, OnlyTheGivenRangesArePlain) {
  const auto tokenizer = Tokenizer::from_directory(data("qwen2_vl"));
  const std::string user = "<|im_end|> hi <|image_pad|>";
  const std::string before = "<|im_start|>user\n<|image_pad|>";
  const std::string text = before + user + "<|im_end|>\n";
  const ByteRange range{before.size(), before.size() + user.size()};
  const Ids ids = tokenizer->encode(text, {.plain_text = {&range, 1}});
  std::vector<std::string> special;
  for (const std::int32_t id : ids)
    if (tokenizer->is_special(id)) special.push_back(tokenizer->id_to_token(id));
  EXPECT_THAT(special, ElementsAre("<|im_start|>", "<|image_pad|>", "<|im_end|>"));
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(PlainText, ATokenThatCrossesTheEdgeIsNoToken) {
  const auto tokenizer = Tokenizer::from_directory(data("qwen2_vl"));
  const std::string text = "<|im_end|>";
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const ByteRange range{cut, text.size()};
    for (const std::int32_t id : tokenizer->encode(text, {.plain_text = {&range, 1}}))
      EXPECT_FALSE(tokenizer->is_special(id));
  }
}

TEST(PlainText, ListsAddAndAllowTokens) {
  const auto tokenizer = Tokenizer::from_directory(data("qwen_vl"));
  const std::string text = "<ref>a cat</ref> <|im_start|>";
  const ByteRange all{0, text.size()};
  const std::vector<std::string> allowed = {"<ref>", "</ref>"};
  const auto n_special = [&](const EncodeOptions& options) {
    std::size_t n = 0;
    for (const std::int32_t id : tokenizer->encode(text, options)) n += tokenizer->is_special(id) ? 1 : 0;
    return n;
  };
  EXPECT_EQ(n_special({.plain_text = {&all, 1}}), 0U);
  EXPECT_EQ(n_special({.plain_text = {&all, 1}, .allowed_in_plain_text = allowed}), 2U);

  Json document = small_document();
  document["added_tokens"].push_back(
      {{"id", 3}, {"content", "<image>"}, {"special", false}, {"normalized", false}});
  document["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}};
  const auto small = Tokenizer::from_json(document.dump(), "small");
  const std::string image = "a<image>b";
  const ByteRange typed{0, image.size()};
  const std::vector<std::string> never = {"<image>"};
  EXPECT_THAT(small->encode(image, {.plain_text = {&typed, 1}}), ElementsAre(0, 3, 1));
  EXPECT_THAT(small->encode(image, {.plain_text = {&typed, 1}, .never_in_plain_text = never}),
              ElementsAre(0, 2));  // "a" "a" "b": characters without a token are dropped
}

TEST(PlainText, TokensThatMatchNormalisedTextToo) {
  // "<S>" lower-cased is "<s>": the token matches after normalisation, the user's own must not.
  Json document = small_document();
  document["normalizer"] = {{"type", "Lowercase"}};
  document["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<", 3}, {">", 4}, {"s", 5}};
  document["added_tokens"].push_back(
      {{"id", 6}, {"content", "<S>"}, {"special", true}, {"normalized", true}});
  const auto tokenizer = Tokenizer::from_json(document.dump(), "t.json");
  const std::string text = "<S>A<s>B<S>";
  const ByteRange user{3, 8};
  EXPECT_THAT(tokenizer->encode(text), ElementsAre(6, 0, 6, 1, 6));
  EXPECT_THAT(tokenizer->encode(text, {.plain_text = {&user, 1}}), ElementsAre(6, 0, 3, 5, 4, 1, 6));
}

TEST(PlainText, BytesOfAFallbackCannotBeSpelled) {
  const auto tokenizer = Tokenizer::from_directory(data("fuyu"));
  const auto id = tokenizer->token_to_id("<0x04>");
  ASSERT_TRUE(id.has_value());
  EXPECT_THAT(encode_typed(*tokenizer, "x<0x04>"), testing::Not(testing::Contains(*id)));
  EXPECT_THAT(encode_typed(*tokenizer, "x\x04"), testing::Contains(*id));
}

TEST(PlainText, BadRangesAreRefused) {
  const auto tokenizer = Tokenizer::from_directory(data("llava"));
  const std::vector<std::vector<ByteRange>> bad = {{{0, 6}}, {{3, 2}}, {{2, 3}, {1, 2}}};
  for (const auto& ranges : bad) EXPECT_THROW(tokenizer->encode("12345", {.plain_text = ranges}), Error);
}

TEST(Tokenizer, BytesThatAreNotUtf8CountAsReplacement) {
  const auto tokenizer = Tokenizer::from_directory(data("llava"));
  EXPECT_EQ(tokenizer->encode("a\xFF\xC3z"), tokenizer->encode("a\uFFFD\uFFFDz"));
  // Ranges move along with the text.
  const std::string text = "\xFF\xFF<s>";
  const ByteRange range{2, text.size()};
  for (const std::int32_t id :
       tokenizer->encode(text, {.add_special_tokens = false, .plain_text = {&range, 1}}))
    EXPECT_FALSE(tokenizer->is_special(id));
}

TEST(Tokenizer, NamesTokensAndIds) {
  const auto tokenizer = Tokenizer::from_directory(data("llava"));
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), 559);
  EXPECT_EQ(tokenizer->unk_id(), 0);
  EXPECT_EQ(tokenizer->token_to_id("<image>"), 558);
  EXPECT_EQ(tokenizer->token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(3), "<0x00>");
  EXPECT_EQ(tokenizer->vocab_size(), 560);
  EXPECT_EQ(tokenizer->id_to_token(-1), "");
  EXPECT_EQ(tokenizer->id_to_token(560), "");
  EXPECT_THROW(tokenizer->decode(Ids{560}), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), Error);
}

TEST(Tokenizer, SpaceRightAfterASpecialToken) {
  // SentencePiece style: every part between added tokens gets its own metaspace.
  const auto tokenizer = Tokenizer::from_directory(data("llava"));
  const auto space = *tokenizer->token_to_id("\u2581");
  const auto newline = *tokenizer->token_to_id("<0x0A>");
  EXPECT_THAT(tokenizer->encode("<image>\n"), ElementsAre(1, 558, space, newline));
  EXPECT_THAT(tokenizer->encode("<image> \n"), ElementsAre(1, 558, space, space, newline));
}

TEST(TokenizerErrors, NameWhatIsUnsupportedOrWrong) {
  const auto with = [](const char* member, Json value) {
    Json document = small_document();
    document[member] = std::move(value);
    return error_of(document.dump());
  };
  EXPECT_THAT(with("normalizer", {{"type", "Sparkle"}}), HasSubstr("normalizer type \"Sparkle\""));
  EXPECT_THAT(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), HasSubstr("\"UnicodeScripts\""));
  EXPECT_THAT(with("decoder", {{"type", "CTC"}}), HasSubstr("decoder type \"CTC\""));
  EXPECT_THAT(with("post_processor", {{"type", "Nothing"}}), HasSubstr("\"Nothing\""));
  EXPECT_THAT(with("version", "2.0"), HasSubstr("\"2.0\""));
  EXPECT_THAT(with("model", {{"type", "Morfessor"}}), HasSubstr("\"Morfessor\""));
  Json vanishing = small_document();
  vanishing["normalizer"] = {{"type", "Strip"}};
  vanishing["added_tokens"].push_back({{"id", 3}, {"content", "\n"}, {"normalized", true}});
  EXPECT_THAT(error_of(vanishing.dump()), HasSubstr("is normalised to nothing"));
  const auto with_model = [](const char* member, Json value) {
    Json document = small_document();
    document["model"][member] = std::move(value);
    return error_of(document.dump());
  };
  EXPECT_THAT(with_model("merges", Json::array()), HasSubstr("model.merges"));
  EXPECT_THAT(with_model("merges", Json::array({"a c"})), HasSubstr("not all three are in the vocabulary"));
  EXPECT_THAT(with_model("merges", Json::array({"a b c"})), HasSubstr("one space"));
  EXPECT_THAT(with_model("merges", Json::array({Json::array({"a"})})), HasSubstr("merges[0]"));
  EXPECT_THAT(with_model("dropout", 0.1), HasSubstr("dropout 0.1"));
  EXPECT_THAT(with_model("unk_token", "?"), HasSubstr("unk_token \"?\""));
  EXPECT_THAT(with_model("vocab", {{"a", 0}, {"b", 1}, {"ab", 1}}), HasSubstr("both have id 1"));
  EXPECT_THAT(with_model("vocab", {{"a", 0}, {"b", 1}, {"ab", 2000000000}}), HasSubstr("2000000000"));
  EXPECT_THAT(with_model("vocab", {{"a", 0}, {"b", -1}}), HasSubstr("vocab[\"b\"]"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("\"model\" is missing"));
}

TEST(TokenizerErrors, PatternsWithoutExactMeaningAreNamed) {
  const auto with_pattern = [](const char* pattern) {
    Json document = small_document();
    document["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    return error_of(document.dump());
  };
  EXPECT_THAT(with_pattern("(?<a"), HasSubstr("pre_tokenizer.pattern.Regex"));
  for (const char* pattern :
       {"(?~ab)", "a{2}+", "(*FAIL)", "\\K", "[[:graph:]]", "(?P<n>a)", "\\p{^Alpha}", "(?R)"})
    EXPECT_THAT(with_pattern(pattern), HasSubstr("which this build cannot do")) << pattern;
  for (const char* pattern : {"[", "[]", "(", "a\\", "\\x{110000}", "\\p{", "[z-a]", "\\p{Nonsense}"})
    EXPECT_THAT(with_pattern(pattern), HasSubstr("not a valid pattern")) << pattern;
}

TEST(TokenizerErrors, RunawayPatternsAndExpansionsEnd) {
  Json document = small_document();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|aa|a?)+$"}}}, {"behavior", "Isolated"}};
  const auto slow = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_THROW(slow->encode(std::string(200, 'a') + "b"), Error);
  document["pre_tokenizer"] = nullptr;
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 60; ++i)
    document["normalizer"]["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  const auto big = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_THROW(big->encode("aaaa"), Error);
}

// Stages that together make a text many times as long are refused before any text comes.
TEST(TokenizerErrors, ChainsThatGrowTextsAreRefused) {
  const auto chain = [](const char* member, const char* list, const Json& stage, int n) {
    Json document = small_document();
    document[member] = {{"type", "Sequence"}, {list, Json::array()}};
    for (int i = 0; i < n; ++i) document[member][list].push_back(stage);
    return error_of(document.dump());
  };
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json shrinking = {{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", "a"}};
  EXPECT_THAT(chain("pre_tokenizer", "pretokenizers", byte_level, 26), HasSubstr("t.json: pre_tokenizer: "));
  EXPECT_THAT(chain("decoder", "decoders", doubling, 26), HasSubstr("t.json: decoder: "));
  EXPECT_EQ(chain("pre_tokenizer", "pretokenizers", byte_level, 3), "(loads)");
  EXPECT_EQ(chain("decoder", "decoders", doubling, 3), "(loads)");
  EXPECT_EQ(chain("decoder", "decoders", shrinking, 40), "(loads)");
}

class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "tokenizer_folder";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string error(const TokenizerSource& hint = {}) {
    try {
      Tokenizer::from_directory(folder_, hint);
    } catch (const Error& e) {
      return e.what();
    }
    return "(loads)";
  }

  fs::path folder_;
};

TEST_F(TokenizerFolder, EmptyOrOddNamesAreRefused) {
  EXPECT_THAT(error(), HasSubstr("no tokenizer"));
  for (const char* name : {"../x.json", "/etc/passwd", "a/../../x", "..\\x", ".", ".."})
    EXPECT_THAT(error({.file = name}), HasSubstr("plain file name")) << name;
  EXPECT_THAT(error({.file = std::string("x\0.json", 7)}), HasSubstr("plain file name"));
  EXPECT_THAT(error({.file = "missing.json"}), HasSubstr("no such file"));
  fs::create_directory(folder_ / "folder.json");
  EXPECT_THAT(error({.file = "folder.json"}), HasSubstr("not a regular file"));
}

TEST_F(TokenizerFolder, LinksStayInside) {
  const fs::path outside = fs::path(testing::TempDir()) / "tokenizer_outside.json";
  std::ofstream(outside) << small_document().dump();
  fs::create_symlink(outside, folder_ / "tokenizer.json");
  EXPECT_THAT(error(), HasSubstr("not a regular file inside"));
  fs::remove(folder_ / "tokenizer.json");
  write("real.json", small_document().dump());
  fs::create_symlink("real.json", folder_ / "tokenizer.json");
  EXPECT_EQ(error(), "(loads)");
  // A hub cache: snapshots/<revision>/file -> ../../blobs/<hash>.
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "snapshots" / "1");
  fs::rename(folder_ / "real.json", folder_ / "blobs" / "1234");
  fs::create_symlink("../../blobs/1234", folder_ / "snapshots" / "1" / "tokenizer.json");
  EXPECT_NO_THROW(Tokenizer::from_directory(folder_ / "snapshots" / "1"));
  // A second tokenizer in a folder of its own there.
  fs::create_directories(folder_ / "snapshots" / "1" / "qformer_tokenizer");
  fs::create_symlink("../../../blobs/1234",
                     folder_ / "snapshots" / "1" / "qformer_tokenizer" / "tokenizer.json");
  EXPECT_NO_THROW(Tokenizer::from_directory(folder_ / "snapshots" / "1" / "qformer_tokenizer"));
  fs::remove(outside);
}

TEST_F(TokenizerFolder, ConfigurationAddsTokensAndFlags) {
  write("tokenizer.json", small_document().dump());
  write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true, "bos_token": "<s>",
    "eos_token": {"content": "</s>", "lstrip": true, "special": true}, "pad_token": null,
    "additional_special_tokens": ["<x>"],
    "added_tokens_decoder": {"3": {"content": "<s>", "special": true}, "4": {"content": "<y>", "special": false}}})");
  const auto tokenizer = Tokenizer::from_directory(folder_);
  EXPECT_EQ(tokenizer->bos_id(), 3);
  EXPECT_EQ(tokenizer->token_to_id("<y>"), 4);
  EXPECT_EQ(tokenizer->eos_id(), 5);
  EXPECT_EQ(tokenizer->token_to_id("<x>"), 6);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
  EXPECT_FALSE(tokenizer->is_special(4));
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_THAT(tokenizer->encode("ab<y>a </s>"), ElementsAre(3, 2, 4, 0, 5, 5));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<s>"}}})");
  EXPECT_THAT(error(), HasSubstr("added_tokens_decoder.x"));
}

TEST_F(TokenizerFolder, VocabJsonAndMerges) {
  // The same words as the byte-level tokenizer.json, from the older pair of files.
  const auto reference = Tokenizer::from_directory(data("qwen2_vl"));
  std::ifstream stream(data("qwen2_vl") / "tokenizer.json");
  const Json document = Json::parse(stream);
  write("vocab.json", document["model"]["vocab"].dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : document["model"]["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write("merges.txt", merges);
  Json config = {
      {"tokenizer_class", "Qwen2Tokenizer"}, {"eos_token", "<|im_end|>"}, {"add_bos_token", false}};
  for (const AddedToken& token : reference->added_tokens())
    config["added_tokens_decoder"][std::to_string(token.id)] = {{"content", token.content},
                                                                {"special", token.special}};
  write("tokenizer_config.json", config.dump());
  const auto tokenizer = Tokenizer::from_directory(folder_);
  for (const char* text :
       {"What color is the circle?", "<|im_start|>user\nIt's 12 o'clock<|im_end|>", "e\u0301 \u4f60"})
    EXPECT_EQ(tokenizer->encode(text), reference->encode(text)) << text;
  EXPECT_EQ(tokenizer->eos_id(), reference->eos_id());
  config["tokenizer_class"] = "CLIPTokenizer";
  write("tokenizer_config.json", config.dump());
  EXPECT_THAT(error(), HasSubstr("CLIPTokenizer"));
  config.erase("tokenizer_class");
  write("tokenizer_config.json", config.dump());
  write("merges.txt", "");
  EXPECT_THAT(error(), HasSubstr("merges table of a BPE is empty"));
}

TEST_F(TokenizerFolder, VocabTxt) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s\n,\n\u00e9\ne\n");
  const auto tokenizer = Tokenizer::from_directory(folder_);
  EXPECT_THAT(tokenizer->encode("Hello, WORLDS \u00c9 zzz"), ElementsAre(2, 4, 7, 5, 6, 9, 1, 3));
  EXPECT_EQ(tokenizer->decode(Ids{4, 7, 5, 6}), "hello, worlds");
  write("vocab.txt", "a\nb\n");
  EXPECT_THAT(error(), HasSubstr("[CLS]"));
}

TEST_F(TokenizerFolder, CleanUpOfSpacesIsForWordPiece) {
  Json document = Json::parse(R"({"model": {"type": "WordLevel", "unk_token": "a",
    "vocab": {"a": 0, ".": 1, "n't": 2, "'": 3, "longer-word": 4}}})");
  write("tokenizer.json", document.dump());
  write("tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  const auto tokenizer = Tokenizer::from_directory(folder_);
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 0, 2, 0, 3, 0, 4, 1, 4, 2}),
            "a. an't a'a longer-word. longer-wordn't");
}

TEST_F(TokenizerFolder, TiktokenFiles) {
  std::ifstream stream(data("qwen_vl") / "qwen.tiktoken");
  const std::string good(std::istreambuf_iterator<char>(stream), {});
  write("other.tiktoken", good);
  const auto plain = Tokenizer::from_directory(folder_);
  EXPECT_TRUE(plain->added_tokens().empty());
  AddedToken token;
  token.content = "<end>";
  token.id = 600;
  token.special = true;
  const auto with =
      Tokenizer::from_directory(folder_, {.file = "", .tiktoken_specials = {token}, .tiktoken_pattern = {}});
  EXPECT_EQ(with->token_to_id("<end>"), 600);
  EXPECT_EQ(with->vocab_size(), 601);
  for (const auto& [text, message] :
       std::vector<std::pair<std::string, std::string>>{{"!!!! 1\n", "line 1: not base64"},
                                                        {"AA== x\n", "expected a rank"},
                                                        {"AA==\n", "line 1"},
                                                        {"AA== 0\n", "no token for byte 0x01"},
                                                        {good + "AA== 9999\n", "twice"},
                                                        {"AA== 0\nAQ== 0\n", "both have id 0"}}) {
    write("other.tiktoken", text);
    EXPECT_THAT(error(), HasSubstr(message));
  }
  write("other.tiktoken", good);
  write("more.tiktoken", good);
  EXPECT_THAT(error(), HasSubstr("several rank files"));
}

TEST(Tiktoken, QwensTable) {
  const auto tokens = qwen_special_tokens();
  ASSERT_EQ(tokens.size(), 217U);  // 151643 ranks + 217 = 151860
  EXPECT_EQ(tokens[0].content, "<|endoftext|>");
  EXPECT_EQ(tokens[3].content, "<|extra_0|>");
  EXPECT_EQ(tokens[207].content, "<|extra_204|>");
  EXPECT_EQ(tokens[214].content, "<img>");
  EXPECT_EQ(tokens[216].content, "<imgpad>");
}

double cpu_seconds(const Tokenizer& tokenizer, const std::string& text) {
  const std::clock_t start = std::clock();
  EXPECT_FALSE(tokenizer.encode(text).empty());
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string without_spaces(std::size_t n) {
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < n) {
    state = state * 1664525U + 1013904223U;
    text.push_back(static_cast<char>('a' + (state >> 24) % 26));
  }
  return text;
}

std::string marks(std::size_t n) {
  std::string text = "a";
  while (text.size() < n) text += "\u0301\u0323";
  return text;
}

// Four times the text may cost at most ten times the time: 5 MB without a space, one letter, all spaces, all
// marks.
TEST(TokenizerSpeed, NearLinearOnHostileTexts) {
  for (const char* name : {"llava", "qwen2_vl", "fuyu", "qformer", "qwen_vl", "spm_bpe"}) {
    const auto tokenizer = Tokenizer::from_directory(data(name));
    const std::size_t n = 50'000;
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {without_spaces(n), without_spaces(4 * n)},
        {std::string(n, 't'), std::string(4 * n, 't')},
        {std::string(n, ' '), std::string(4 * n, ' ')},
        {std::string(n, '\n') + "x", std::string(4 * n, '\n') + "x"},
        {marks(n), marks(4 * n)},
        {std::string(n, '<'), std::string(4 * n, '<')}};
    for (const auto& [small, large] : pairs) {
      const double one = cpu_seconds(*tokenizer, small);
      const double four = cpu_seconds(*tokenizer, large);
      EXPECT_LT(four, 10 * one + 0.2)
          << name << " " << large.substr(0, 8) << " " << one << " s, then " << four << " s";
    }
  }
}

TEST(TokenizerSpeed, OneTokenizerServesManyThreads) {
  const auto tokenizer = Tokenizer::from_directory(data("llava"));
  const std::string text = "USER: <image>\nWhat color is the circle? ASSISTANT:";
  const Ids expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> n_wrong(4, 0);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        n_wrong[t] += tokenizer->encode(text) != expected || tokenizer->decode(expected).empty() ? 1 : 0;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(n_wrong, testing::Each(0));
}

}  // namespace
}  // namespace triptych
