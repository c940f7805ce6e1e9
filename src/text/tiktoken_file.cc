#include "text/tiktoken_file.h"

#include <charconv>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/base64.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxTokenBytes = 256;  // published ones stay at 128

struct Line {
  std::string bytes;
  std::int32_t rank = -1;
};

Line parse_line(std::string_view line, std::string_view source, std::size_t number) {
  const auto bad = [&](std::string_view what) {
    fail(ErrorCode::kInvalidFile, "{}: line {}: {}", source, number, what);
  };
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) bad("expected \"<base64> <rank>\"");
  auto bytes = base64_decode(line.substr(0, space));
  if (!bytes || bytes->empty()) bad("not base64");
  if (bytes->size() > kMaxTokenBytes) bad("a token that is too long");
  const std::string_view rank = line.substr(space + 1);
  Line out{std::move(*bytes), -1};
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), out.rank);
  if (error != std::errc() || end != rank.data() + rank.size() || out.rank < 0) bad("expected a rank >= 0");
  return out;
}

std::string encoded(std::string_view bytes) {
  std::string out;
  byte_level::append_encoded(out, bytes);
  return out;
}

// Every way to put a token together from two others is a merge of the token's rank.
std::vector<BpeMerge> all_merges(const Vocab& vocab, const std::vector<Line>& lines) {
  std::vector<BpeMerge> merges;
  for (const Line& line : lines) {
    const std::string text = encoded(line.bytes);
    for (std::size_t i = utf8::length_of(text[0]); i < text.size(); i += utf8::length_of(text[i])) {
      const std::int32_t left = vocab.find(std::string_view(text).substr(0, i));
      const std::int32_t right = left < 0 ? -1 : vocab.find(std::string_view(text).substr(i));
      if (right >= 0) merges.push_back({left, right, line.rank, static_cast<std::uint32_t>(line.rank)});
    }
  }
  return merges;
}

}  // namespace

std::string_view qwen_split_pattern() {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::vector<AddedToken> qwen_special_tokens() {
  std::vector<AddedToken> out;
  const auto add = [&](std::string content) {
    AddedToken token;
    token.content = std::move(content);
    token.special = true;
    out.push_back(std::move(token));
  };
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) add(name);
  for (int i = 0; i < 205; ++i) add(fmt::format("<|extra_{}|>", i));
  for (const char* name :
       {"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>", "</img>", "<imgpad>"})
    add(name);
  return out;
}

std::unique_ptr<TokenizerImpl> parse_tiktoken(std::string_view text, std::string_view source_name,
                                              const TokenizerSource& hint) {
  std::vector<Line> lines;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(parse_line(line, source_name, number));
  }
  std::vector<Vocab::Entry> entries;
  entries.reserve(lines.size());
  for (const Line& line : lines) entries.push_back({encoded(line.bytes), line.rank});
  Vocab vocab(entries, source_name);
  if (vocab.size() != lines.size())
    fail(ErrorCode::kInvalidFile, "{}: a token stands in it twice", source_name);
  for (unsigned b = 0; b < 256; ++b)
    if (vocab.find(byte_level::character_of(static_cast<unsigned char>(b))) < 0)
      fail(ErrorCode::kInvalidFile, "{}: no token for byte 0x{:02X}", source_name, b);

  auto impl = std::make_unique<TokenizerImpl>();
  impl->source = source_name;
  const bool is_qwen = hint.tiktoken_pattern.empty();
  if (is_qwen) impl->normalizer = parse_normalizer(JsonView(Json::object({{"type", "NFC"}}), "normalizer"));
  const Json pre_tokenizer = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", is_qwen ? std::string(qwen_split_pattern()) : hint.tiktoken_pattern}}},
         {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  impl->pre_tokenizer = parse_pre_tokenizer(JsonView(pre_tokenizer, std::string(source_name) + ": pattern"));
  impl->decoder = parse_decoder(JsonView(Json::object({{"type", "ByteLevel"}}), "decoder"));
  auto merges = all_merges(vocab, lines);
  BpeOptions options;
  options.ignore_merges = true;
  impl->model = make_bpe(std::move(vocab), std::move(merges), std::move(options), source_name);
  const bool default_specials = hint.tiktoken_specials.empty() && source_name.ends_with("qwen.tiktoken");
  impl->add_tokens(default_specials ? qwen_special_tokens() : hint.tiktoken_specials,
                   AddedVocabulary::Ids::kAsGiven);
  return impl;
}

}  // namespace triptych
