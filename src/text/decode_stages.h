// The stages that token_decoder.cc builds chains of. Behaviour as the decoders of Hugging Face tokenizers
// 0.23. `pass` is TokenDecoder::pass (lone_token.cc).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/regex.h"
#include "text/token_decoder.h"
#include "unicode/utf8.h"

namespace triptych {

// The byte of "<0x41>", or -1.
int fallback_byte(std::string_view token);

// A stage that sees each token as a whole.
class WholeTokenStage : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void text(std::string_view fragment) override { token_.append(fragment); }
  void end_token() override;
  void finish() override { next().finish(); }

 protected:
  virtual void on_token(std::string& token) = 0;
  void emit(std::string_view token);

 private:
  std::string token_;
};

// All tokens become one; characters of the byte alphabet become bytes. A token with any other character is
// itself.
class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  static void pass(LoneToken& token);
  void finish() override;

 protected:
  void on_token(std::string& token) override;

 private:
  utf8::Stream stream_;
};

// A run of tokens "<0x41>" becomes one token.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  static void pass(LoneToken& token);
  void finish() override;

 protected:
  void on_token(std::string& token) override;

 private:
  void close_run();

  utf8::Stream stream_;
  bool in_run_ = false;
};

// All tokens become one.
class FuseStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  static void pass(LoneToken& token);
  void text(std::string_view fragment) override { next().text(fragment); }
  void end_token() override {}
  void finish() override;
};

// Takes up to `start` copies of a character off each token's front and up to `stop` off its back.
class StripStage final : public DecodeStage {
 public:
  StripStage(TokenSink& sink, std::string content, std::size_t start, std::size_t stop);
  static void pass(LoneToken& token, const std::string& content, std::size_t start, std::size_t stop);
  void text(std::string_view fragment) override;
  void end_token() override;
  void finish() override { next().finish(); }

 private:
  std::string content_;
  std::size_t start_;
  std::size_t stop_;
  bool at_front_ = true;
  std::size_t n_front_ = 0;
  std::string held_;  // after a call at most `stop` copies
};

class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(TokenSink& sink, std::shared_ptr<const Regex> pattern, std::string content);
  static void pass(LoneToken& token, const std::shared_ptr<const Regex>& pattern, const std::string& content);
  static std::string replaced(std::string_view token, const Regex& pattern, std::string_view content);

 protected:
  void on_token(std::string& token) override;

 private:
  std::shared_ptr<const Regex> pattern_;
  std::string content_;
};

// The replacement character becomes a space; in the first token it vanishes, unless nothing is ever
// prepended.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(TokenSink& sink, std::string replacement, bool prepends);
  static void pass(LoneToken& token, const std::string& replacement, bool prepends);
  void text(std::string_view fragment) override;
  void end_token() override;
  void finish() override { next().finish(); }

 private:
  std::string replacement_;
  bool first_;
};

// Tokens with the prefix continue a word, others get a space before them.
class WordPieceStage final : public WholeTokenStage {
 public:
  WordPieceStage(TokenSink& sink, std::string prefix, bool cleanup);
  static void pass(LoneToken& token, const std::string& prefix, bool cleanup);

 protected:
  void on_token(std::string& token) override;

 private:
  std::string prefix_;
  bool cleanup_;
  bool first_ = true;
};

// The suffix that ends words becomes a space, and nothing in the last token.
class BpeSuffixStage final : public WholeTokenStage {
 public:
  BpeSuffixStage(TokenSink& sink, std::string suffix);
  static void pass(LoneToken& token, const std::string& suffix);
  void finish() override;

 protected:
  void on_token(std::string& token) override;

 private:
  void put(std::string_view replacement);

  std::string suffix_;
  std::string held_;
  bool has_held_ = false;
};

// No decoder: tokens with spaces between.
class JoinStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  static void pass(LoneToken& token);
  void text(std::string_view fragment) override;
  void end_token() override;
  void finish() override { next().finish(); }

 private:
  void open();

  bool first_ = true;
  bool is_open_ = false;
};

// Removes spaces before punctuation and contractions in the joined text. Every rule starts at a space and
// none reaches kReach bytes.
class CleanupStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  static void pass(LoneToken& token);
  void text(std::string_view fragment) override;
  void end_token() override {}
  void finish() override;

 private:
  static constexpr std::size_t kReach = 8;
  void flush(std::size_t n);

  std::string held_;
};

}  // namespace triptych
