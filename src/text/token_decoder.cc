#include "text/token_decoder.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "text/decode_stages.h"
#include "text/regex.h"
#include "unicode/utf8.h"

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
  void pass(LoneToken& token) const override {
    std::apply([&](const auto&... values) { Stage::pass(token, values...); }, settings_);
  }

 private:
  std::tuple<Settings...> settings_;
};

template <typename Stage, typename... Settings>
std::unique_ptr<TokenDecoder> make_decoder(Settings... settings) {
  return std::make_unique<SimpleDecoder<Stage, Settings...>>(std::move(settings)...);
}

std::string one_character(const JsonView& view) {
  std::string text = view.as_string();
  if (text.empty() || utf8::length_of(text[0]) != text.size()) view.fail_expected("one character");
  return text;
}

// Multiplies `growth` by the most bytes that one byte can become.
std::unique_ptr<TokenDecoder> parse_replace(const JsonView& view, double& growth) {
  const JsonView pattern = view.at("pattern");
  std::string content = view.at("content").as_string();
  std::shared_ptr<const Regex> regex;
  const auto text = pattern.find("String");
  const auto n_content = static_cast<double>(content.size());
  const double n_pattern = text ? static_cast<double>(text->as_string().size()) : 0;
  growth *= n_pattern > 0 ? std::max(1.0, n_content / n_pattern) : 1 + n_content;
  if (text)
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

void parse_into(const JsonView& view, DecoderChain& chain, double& growth) {
  const std::string type = view.at("type").as_string();
  if (type == "Sequence") {
    for (const JsonView& item : view.at("decoders").items()) parse_into(item, chain, growth);
  } else if (type == "ByteLevel") {
    chain.push_back(make_decoder<ByteLevelStage>());
  } else if (type == "ByteFallback") {
    chain.push_back(make_decoder<ByteFallbackStage>());
  } else if (type == "Fuse") {
    chain.push_back(make_decoder<FuseStage>());
  } else if (type == "Metaspace") {
    chain.push_back(parse_metaspace(view));
  } else if (type == "Replace") {
    chain.push_back(parse_replace(view, growth));
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
  double growth = 1;
  if (view.is_null())
    chain.push_back(make_decoder<JoinStage>());
  else
    parse_into(view, chain, growth);
  constexpr double kMaxGrowth = 64;  // published files reach 2
  if (growth > kMaxGrowth)
    fail(ErrorCode::kInvalidFile,
         "{}: expected replacements that make a text at most {} times as long, these reach {}", view.path(),
         kMaxGrowth, growth);
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
