// Masks on the vocabularies of published tokenizers: at every step of an answer exactly the tokens whose
// bytes keep it the beginning of a document, by a reader of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "grammar/constraint.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"
#include "text/stream_decoder.h"
#include "text/token_bytes.h"
#include "text/tokenizer.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kSchema = R"({"type":"object","properties":{
    "name":{"type":"string"},
    "count":{"type":"integer"},
    "tags":{"type":"array","items":{"enum":["red","green","grey"]},"maxItems":3},
    "ok":{"type":"boolean"}},
  "required":["name","count","tags","ok"],"additionalProperties":false})";

// Reads a beginning of a document of kSchema.
class DocumentReader {
 public:
  enum class Found { kNothing, kBeginning, kWhole };

  explicit DocumentReader(std::string_view text) : text_(text) {}
  Found read() {
    const bool fits = word("{") && blank() && word("\"name\":") && blank() && string() && comma() &&
                      word("\"count\":") && blank() && integer() && comma() && word("\"tags\":") && blank() &&
                      tags() && comma() && word("\"ok\":") && blank() && one_of({"true", "false"}) &&
                      blank() && word("}");
    if (cut_) return Found::kBeginning;
    return fits && at_ == text_.size() ? Found::kWhole : Found::kNothing;
  }

 private:
  bool at_end() {
    cut_ = at_ == text_.size();
    return cut_;
  }
  bool word(std::string_view expected) {
    const std::string_view rest = text_.substr(at_);
    if (expected.starts_with(rest.substr(0, expected.size())) && rest.size() < expected.size()) {
      cut_ = true;
      return false;
    }
    if (!rest.starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  bool one_of(std::initializer_list<std::string_view> words) {
    bool any_cut = false;
    for (const std::string_view one : words) {
      if (word(one)) return true;
      any_cut |= cut_;
      cut_ = false;
    }
    cut_ = any_cut;
    return false;
  }
  bool comma() { return word(",") && blank(); }
  bool blank() {
    if (at_end()) return false;
    if (text_[at_] == ' ')
      ++at_;
    else if (text_[at_] == '\n') {
      ++at_;
      if (at_end()) return false;
      const char c = text_[at_];
      const int most = c == ' ' ? 40 : c == '\t' ? 10 : 0;
      for (int n = 0; n < most && at_ < text_.size() && text_[at_] == c; ++n) ++at_;
    }
    return !at_end();
  }
  bool string() {
    if (!word("\"")) return false;
    for (;;) {
      if (at_end()) return false;
      if (word("\"")) return true;
      if (word("\\")) {
        if (!escape()) return false;
        continue;
      }
      const auto step = utf8::step(text_.substr(at_));
      if (!step.valid) {
        cut_ = step.truncated;
        return false;
      }
      if (step.code_point < 0x20) return false;
      at_ += step.length;
    }
  }
  bool escape() {
    if (at_end()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    unsigned high = 0;
    if (!hex(high)) return false;
    if (high < 0xD800 || high > 0xDFFF) return true;
    unsigned low = 0;
    return high < 0xDC00 && word("\\u") && hex(low) && low >= 0xDC00 && low <= 0xDFFF;
  }
  // Four digits; a beginning of a half of a surrogate pair that cannot become right is nothing.
  bool hex(unsigned& value) {
    const bool is_low = text_.substr(0, at_).ends_with("\\u") && at_ >= 8 && text_[at_ - 8] == '\\' &&
                        text_[at_ - 7] == 'u' && is_high(text_.substr(at_ - 6, 4));
    for (int i = 0; i < 4; ++i) {
      if (at_end()) return false;
      const char c = text_[at_++];
      const auto digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
      if (digit == std::string_view::npos) return false;
      value = value * 16 + static_cast<unsigned>(digit);
      if (is_low && i == 0 && digit != 0xD) return false;
      if (is_low && i == 1 && digit < 0xC) return false;
      if (!is_low && i == 1 && value >= 0xDC) {
        if (value <= 0xDF) return false;
      }
    }
    return true;
  }
  static bool is_high(std::string_view digits) {
    return (digits[0] == 'd' || digits[0] == 'D') &&
           std::string_view("89abAB").find(digits[1]) != std::string_view::npos;
  }
  bool integer() {
    if (at_end()) return false;
    if (text_[at_] == '-') ++at_;
    if (at_end() || text_[at_] < '0' || text_[at_] > '9') return false;
    if (text_[at_++] == '0') return !at_end();
    for (int n = 1; n < 18 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++n) ++at_;
    return !at_end();
  }
  bool tags() {
    if (!word("[") || !blank()) return false;
    if (word("]")) return true;
    for (int n = 1;; ++n) {
      if (!one_of({"\"red\"", "\"green\"", "\"grey\""})) return false;
      if (at_end()) return false;
      if (n < 3 && text_[at_] == ',') {
        if (!comma()) return false;
        continue;
      }
      return blank() && word("]");
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool cut_ = false;
};

bool is_set(const std::vector<std::uint32_t>& bits, std::size_t id) {
  return (bits[id / 32] >> (id % 32) & 1U) != 0;
}

// Walks through `document` with the longest allowed tokens and checks every mask on the way.
void check_masks(const TokenBytes& vocabulary, std::string_view document) {
  TokenMasker masker(vocabulary.tokens, vocabulary.drops_first_blank);
  const auto constraint = masker.constrain({.json_schema = std::string(kSchema)});
  std::vector<std::uint32_t> bits(masker.n_mask_words());
  std::string text;
  bool at_start = true;
  while (!constraint->must_end()) {
    constraint->mask(bits);
    ASSERT_EQ(constraint->may_end(), DocumentReader(text).read() == DocumentReader::Found::kWhole) << text;
    std::int32_t best = -1;
    std::string best_bytes;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      std::string bytes = vocabulary.tokens[id];
      const bool is_token = !bytes.empty();
      if (at_start && vocabulary.drops_first_blank && bytes.starts_with(' ')) bytes.erase(0, 1);
      const bool expected =
          is_token && DocumentReader(text + bytes).read() != DocumentReader::Found::kNothing;
      ASSERT_EQ(is_set(bits, id), expected) << '"' << text << "\" and then \"" << bytes << '"';
      if (expected && document.substr(text.size()).starts_with(bytes) && bytes.size() > best_bytes.size()) {
        best = static_cast<std::int32_t>(id);
        best_bytes = bytes;
      }
    }
    ASSERT_GE(best, 0) << "behind " << text;
    ASSERT_TRUE(constraint->accept(best, &text));
    at_start = false;
  }
  EXPECT_EQ(text, document);
  constraint->mask(bits);
  EXPECT_THAT(bits, testing::Each(0U));
  EXPECT_FALSE(constraint->accept(0));
}

constexpr std::string_view kDocuments[] = {
    R"({"name": "Žluťoučký 猫 😀 \u00e9\ud83d\ude00\n", "count": -120, "tags": ["grey", "red"], "ok": true})",
    "{\n  \"name\": \"\",\n  \"count\": 0,\n  \"tags\": [],\n  \"ok\": false\n}",
    R"({"name":"a","count":7,"tags":["green","green","red"],"ok":true})"};

TEST(TokenMasks, AllowExactlyWhatKeepsTheAnswerADocument) {
  for (const char* name : {"llava", "qwen2_vl", "qwen_vl", "fuyu"}) {
    SCOPED_TRACE(name);
    const auto tokenizer =
        Tokenizer::from_directory(test::source_dir() / "tests" / "data" / "tokenizers" / name);
    const TokenBytes vocabulary = token_bytes(*tokenizer);
    for (const std::string_view document : kDocuments) check_masks(vocabulary, document);
  }
  const auto scenes = Tokenizer::from_directory(test::source_dir() / "assets/models/scenes-llava");
  check_masks(token_bytes(*scenes), kDocuments[0]);
}

TEST(TokenMasks, AllowExactlyThatOfAVocabularyOfFullSize) {
  TRIPTYCH_SHARED_OR_SKIP(directory, "golden/tokenizers/mistral");
  const auto tokenizer = Tokenizer::from_directory(directory);
  const TokenBytes vocabulary = token_bytes(*tokenizer);
  EXPECT_GT(vocabulary.tokens.size(), 30'000U);
  check_masks(vocabulary, kDocuments[0]);
}

TEST(TokenBytes, JoinedAreTheText) {
  for (const char* name : {"llava", "qwen2_vl", "qwen_vl", "fuyu", "spm_bpe", "spm_unigram"}) {
    SCOPED_TRACE(name);
    const auto tokenizer =
        Tokenizer::from_directory(test::source_dir() / "tests" / "data" / "tokenizers" / name);
    const TokenBytes vocabulary = token_bytes(*tokenizer);
    for (const std::string text :
         {"Hello, world! 12345", "{\"a\": [1, 2]}", "naïve café 世界 😀", "two\nlines  here"}) {
      const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
      std::string joined;
      for (const std::int32_t id : ids) joined += vocabulary.tokens[static_cast<std::size_t>(id)];
      if (vocabulary.drops_first_blank && joined.starts_with(' ')) joined.erase(0, 1);
      EXPECT_EQ(utf8::sanitize(joined), tokenizer->decode(ids, {.skip_special_tokens = true})) << text;
    }
  }
}

TEST(TokenMasks, SpecialTokensAreNeverAllowed) {
  const auto tokenizer = Tokenizer::from_directory(test::source_dir() / "tests/data/tokenizers/qwen2_vl");
  const TokenBytes vocabulary = token_bytes(*tokenizer);
  TokenMasker masker(vocabulary.tokens, vocabulary.drops_first_blank);
  const auto constraint = masker.constrain({.regex = "[^]*"});
  std::vector<std::uint32_t> bits(masker.n_mask_words());
  constraint->mask(bits);
  int n_special = 0;
  for (const AddedToken& token : tokenizer->added_tokens())
    if (token.special) {
      ++n_special;
      EXPECT_FALSE(is_set(bits, static_cast<std::size_t>(token.id))) << token.content;
      EXPECT_FALSE(constraint->accept(token.id));
    }
  EXPECT_GT(n_special, 0);
  EXPECT_FALSE(constraint->accept(-1));
  EXPECT_FALSE(constraint->accept(tokenizer->vocab_size()));
}

}  // namespace
}  // namespace triptych
