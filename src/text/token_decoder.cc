#include "text/token_decoder.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace triptych {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // ▁

// A decoder whose stage is made from a copy of its settings.
template <typename Stage, typename... Settings>
class SimpleDecoder final : public TokenDecoder {
 public:
  explicit SimpleDecoder(Settings... settings) : settings_(std::move(settings)...) {}
  std::unique_ptr<DecodeStage> start(TokenSink& next) const override {
    return std::apply([&](const auto&... values) { return std::make_unique<Stage>(next, values...); },
                      settings_);
  }

 private:
  std::tuple<Settings...> settings_;
};

template <typename Stage, typename... Settings>
std::unique_ptr<TokenDecoder> make_decoder(Settings... settings) {
  return std::make_unique<SimpleDecoder<Stage, Settings...>>(std::move(settings)...);
}

// A stage that sees each token as a whole.
class WholeTokenStage : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void text(std::string_view fragment) override { token_.append(fragment); }
  void end_token() override {
    on_token(token_);
    token_.clear();
  }
  void finish() override { next().finish(); }

 protected:
  virtual void on_token(std::string& token) = 0;
  void emit(std::string_view token) {
    next().text(token);
    next().end_token();
  }

 private:
  std::string token_;
};

// All tokens become one; characters of the byte alphabet become bytes. A token with any other character is
// itself.
class ByteLevelStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override {
    std::string out;
    stream_.finish(out);
    next().text(out);
    next().end_token();
    next().finish();
  }

 protected:
  void on_token(std::string& token) override {
    const auto bytes = byte_level::decode(token);
    std::string out;
    stream_.push(bytes ? *bytes : token, out);
    next().text(out);
  }

 private:
  utf8::Stream stream_;
};

// A run of tokens "<0x41>" becomes one token.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override {
    close_run();
    next().finish();
  }

 protected:
  void on_token(std::string& token) override {
    const int byte = byte_of(token);
    if (byte < 0) {
      close_run();
      emit(token);
      return;
    }
    in_run_ = true;
    std::string out;
    const char c = static_cast<char>(byte);
    stream_.push(std::string_view(&c, 1), out);
    if (!out.empty()) next().text(out);
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if ((c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'))
        value = value * 16 + ((c | 32) - 'a' + 10);
      else
        return -1;
    }
    return value;
  }
  void close_run() {
    if (!in_run_) return;
    in_run_ = false;
    std::string out;
    stream_.finish(out);
    if (!out.empty()) next().text(out);
    next().end_token();
  }

  utf8::Stream stream_;
  bool in_run_ = false;
};

class FuseStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void text(std::string_view fragment) override { next().text(fragment); }
  void end_token() override {}
  void finish() override {
    next().end_token();
    next().finish();
  }
};

// Takes up to `start` copies of a character off each token's front and up to `stop` off its back.
class StripStage final : public DecodeStage {
 public:
  StripStage(TokenSink& sink, std::string content, std::size_t start, std::size_t stop)
      : DecodeStage(sink), content_(std::move(content)), start_(start), stop_(stop) {}
  void text(std::string_view fragment) override {
    while (at_front_ && !fragment.empty()) {
      if (n_front_ >= start_ || !fragment.starts_with(content_)) {
        at_front_ = false;
        break;
      }
      ++n_front_;
      fragment.remove_prefix(content_.size());
    }
    if (fragment.empty()) return;
    held_.append(fragment);
    // The last `stop` copies may have to go.
    std::size_t keep = held_.size();
    for (std::size_t n = 0; n < stop_ && std::string_view(held_).substr(0, keep).ends_with(content_); ++n)
      keep -= content_.size();
    if (keep == 0) return;
    next().text(std::string_view(held_).substr(0, keep));
    held_.erase(0, keep);
  }
  void end_token() override {
    held_.clear();  // at most `stop` copies
    at_front_ = true;
    n_front_ = 0;
    next().end_token();
  }
  void finish() override { next().finish(); }

 private:
  std::string content_;
  std::size_t start_;
  std::size_t stop_;
  bool at_front_ = true;
  std::size_t n_front_ = 0;
  std::string held_;
};

class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(TokenSink& sink, std::shared_ptr<const Regex> pattern, std::string content)
      : WholeTokenStage(sink), pattern_(std::move(pattern)), content_(std::move(content)) {}

 protected:
  void on_token(std::string& token) override {
    std::string out;
    std::size_t kept = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    for (Regex::Matches matches(*pattern_, token); !token.empty() && matches.next(begin, end);) {
      out.append(token, kept, begin - kept).append(content_);
      kept = end;
    }
    out.append(token, kept);
    emit(out);
  }

 private:
  std::shared_ptr<const Regex> pattern_;
  std::string content_;
};

// The replacement character becomes a space; in the first token it vanishes, unless nothing is ever
// prepended.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(TokenSink& sink, std::string replacement, bool prepends)
      : DecodeStage(sink), replacement_(std::move(replacement)), first_(prepends) {}
  void text(std::string_view fragment) override {
    std::string out;
    for (std::size_t at = 0; at < fragment.size();) {
      if (fragment.substr(at).starts_with(replacement_)) {
        if (!first_) out.push_back(' ');
        at += replacement_.size();
      } else {
        out.push_back(fragment[at++]);
      }
    }
    next().text(out);
  }
  void end_token() override {
    first_ = false;
    next().end_token();
  }
  void finish() override { next().finish(); }

 private:
  std::string replacement_;
  bool first_;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t kept = 0;
  for (; at != std::string::npos; at = text.find(from, kept)) {
    out.append(text, kept, at - kept).append(to);
    kept = at + from.size();
  }
  out.append(text, kept);
  text = std::move(out);
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kCleanup = {{
    {" .", "."},
    {" ?", "?"},
    {" !", "!"},
    {" ,", ","},
    {" ' ", "'"},
    {" n't", "n't"},
    {" 'm", "'m"},
    {" 's", "'s"},
    {" 've", "'ve"},
    {" 're", "'re"},
}};

class WordPieceStage final : public WholeTokenStage {
 public:
  WordPieceStage(TokenSink& sink, std::string prefix, bool cleanup)
      : WholeTokenStage(sink), prefix_(std::move(prefix)), cleanup_(cleanup) {}

 protected:
  void on_token(std::string& token) override {
    if (!first_) {
      if (token.starts_with(prefix_))
        token.erase(0, prefix_.size());
      else
        token.insert(token.begin(), ' ');
    }
    first_ = false;
    if (cleanup_) {
      for (const auto& [from, to] : kCleanup) {
        replace_all(token, from, to);
        // The reference's WordPiece has one rule more, here in its order.
        if (from == " 'm") replace_all(token, " do not", " don't");
      }
    }
    emit(token);
  }

 private:
  std::string prefix_;
  bool cleanup_;
  bool first_ = true;
};

// The suffix that ends words becomes a space, and nothing in the last token.
class BpeSuffixStage final : public WholeTokenStage {
 public:
  BpeSuffixStage(TokenSink& sink, std::string suffix) : WholeTokenStage(sink), suffix_(std::move(suffix)) {}
  void finish() override {
    if (has_held_) put("");
    next().finish();
  }

 protected:
  void on_token(std::string& token) override {
    if (has_held_) put(" ");
    held_ = token;
    has_held_ = true;
  }

 private:
  void put(std::string_view replacement) {
    if (!suffix_.empty()) replace_all(held_, suffix_, replacement);
    emit(held_);
  }

  std::string suffix_;
  std::string held_;
  bool has_held_ = false;
};

// No decoder: tokens with spaces between.
class JoinStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void text(std::string_view fragment) override {
    open();
    next().text(fragment);
  }
  void end_token() override {
    open();
    is_open_ = false;
    first_ = false;
    next().end_token();
  }
  void finish() override { next().finish(); }

 private:
  void open() {
    if (!is_open_ && !first_) next().text(" ");
    is_open_ = true;
  }
  bool first_ = true;
  bool is_open_ = false;
};

// Works on the joined text. Every rule starts at a space and none reaches kReach bytes.
class CleanupStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void text(std::string_view fragment) override {
    held_.append(fragment);
    // Certain is all before the end of the last kReach bytes in a row without a space. Older text has no such
    // row.
    const std::size_t oldest = held_.size() - std::min(held_.size(), fragment.size() + kReach);
    std::size_t row = 0;
    std::size_t cut = 0;
    for (std::size_t at = held_.size(); at > oldest && cut == 0; --at) {
      row = held_[at - 1] == ' ' ? 0 : row + 1;
      if (row == kReach) cut = at - 1 + kReach;
    }
    if (cut == 0) return;
    flush(cut);
  }
  void end_token() override {}
  void finish() override {
    flush(held_.size());
    next().end_token();
    next().finish();
  }

 private:
  static constexpr std::size_t kReach = 8;
  void flush(std::size_t n) {
    std::string part = held_.substr(0, n);
    held_.erase(0, n);
    for (const auto& [from, to] : kCleanup) replace_all(part, from, to);
    next().text(part);
  }
  std::string held_;
};

std::string one_character(const JsonView& view) {
  std::string text = view.as_string();
  if (text.empty() || utf8::length_of(text[0]) != text.size()) view.fail_expected("one character");
  return text;
}

std::unique_ptr<TokenDecoder> parse_replace(const JsonView& view) {
  const JsonView pattern = view.at("pattern");
  std::string content = view.at("content").as_string();
  std::shared_ptr<const Regex> regex;
  if (const auto text = pattern.find("String"))
    regex = std::make_shared<const Regex>(Regex::literal(text->as_string(), text->path()));
  else
    regex = std::make_shared<const Regex>(
        Regex::oniguruma(pattern.at("Regex").as_string(), pattern.at("Regex").path()));
  return make_decoder<ReplaceStage>(std::move(regex), std::move(content));
}

std::unique_ptr<TokenDecoder> parse_metaspace(const JsonView& view) {
  bool prepends = view.get_string("prepend_scheme", "always") != "never";
  if (!view.get_bool("add_prefix_space", true)) prepends = false;
  return make_decoder<MetaspaceStage>(one_character(view.at("replacement")), prepends);
}

std::unique_ptr<TokenDecoder> parse_strip(const JsonView& view) {
  constexpr std::int64_t kMost = 1 << 20;
  return make_decoder<StripStage>(one_character(view.at("content")),
                                  static_cast<std::size_t>(view.get_int("start", 0, 0, kMost)),
                                  static_cast<std::size_t>(view.get_int("stop", 0, 0, kMost)));
}

void parse_into(const JsonView& view, DecoderChain& chain) {
  const std::string type = view.at("type").as_string();
  if (type == "Sequence") {
    for (const JsonView& item : view.at("decoders").items()) parse_into(item, chain);
  } else if (type == "ByteLevel") {
    chain.push_back(make_decoder<ByteLevelStage>());
  } else if (type == "ByteFallback") {
    chain.push_back(make_decoder<ByteFallbackStage>());
  } else if (type == "Fuse") {
    chain.push_back(make_decoder<FuseStage>());
  } else if (type == "Metaspace") {
    chain.push_back(parse_metaspace(view));
  } else if (type == "Replace") {
    chain.push_back(parse_replace(view));
  } else if (type == "Strip") {
    chain.push_back(parse_strip(view));
  } else if (type == "WordPiece") {
    chain.push_back(
        make_decoder<WordPieceStage>(view.get_string("prefix", "##"), view.get_bool("cleanup", true)));
  } else if (type == "BPEDecoder") {
    chain.push_back(make_decoder<BpeSuffixStage>(view.get_string("suffix", "</w>")));
  } else {
    fail(ErrorCode::kUnsupported, "{}: decoder type \"{}\" is not supported", view.path(), type);
  }
}

}  // namespace

DecoderChain parse_decoder(const JsonView& view) {
  DecoderChain chain;
  if (view.is_null())
    chain.push_back(make_decoder<JoinStage>());
  else
    parse_into(view, chain);
  return chain;
}

DecoderChain make_sentencepiece_decoder(bool strip_leading_space) {
  DecoderChain chain;
  chain.push_back(make_decoder<ReplaceStage>(
      std::make_shared<const Regex>(Regex::literal(kMetaspace, "tokenizer.model")), std::string(" ")));
  chain.push_back(make_decoder<ByteFallbackStage>());
  chain.push_back(make_decoder<FuseStage>());
  if (strip_leading_space)
    chain.push_back(make_decoder<StripStage>(std::string(" "), std::size_t{1}, std::size_t{0}));
  return chain;
}

std::unique_ptr<TokenDecoder> make_cleanup_decoder() { return make_decoder<CleanupStage>(); }

struct DecoderRun::Collector final : TokenSink {
  std::string out;
  void text(std::string_view fragment) override { out.append(fragment); }
  void end_token() override {}
  void finish() override {}
};

DecoderRun::DecoderRun(const DecoderChain& chain) : collector_(std::make_unique<Collector>()) {
  TokenSink* next = collector_.get();
  for (auto decoder = chain.rbegin(); decoder != chain.rend(); ++decoder) {
    stages_.push_back((*decoder)->start(*next));
    next = stages_.back().get();
  }
}

DecoderRun::~DecoderRun() = default;

void DecoderRun::token(std::string_view content) {
  TokenSink& first = stages_.empty() ? static_cast<TokenSink&>(*collector_) : *stages_.back();
  first.text(content);
  first.end_token();
}

void DecoderRun::finish() {
  if (!stages_.empty()) stages_.back()->finish();
}

std::string DecoderRun::take() { return std::exchange(collector_->out, {}); }

}  // namespace triptych
