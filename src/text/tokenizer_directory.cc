// Tokenizer::from_directory: which file holds the tokenizer, and how each form is read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/checkpoint_links.h"
#include "base/error.h"
#include "base/json.h"
#include "text/sentencepiece_file.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_tables.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{512} << 20;

bool stays_inside(const fs::path& file, const fs::path& directory) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);
  if (error) return false;
  const fs::path root = fs::canonical(directory, error);
  return !error && may_lead_to(root, target);
}

bool exists(const fs::path& directory, std::string_view name) {
  std::error_code error;
  return fs::exists(directory / name, error);
}

void check_plain_name(const std::string& name) {
  if (!name.empty() && name != "." && name != ".." &&
      name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos)
    return;
  std::string shown = name;
  std::replace(shown.begin(), shown.end(), '\0', '?');
  fail(ErrorCode::kInvalidArgument, "tokenizer file \"{}\": expected a plain file name", shown);
}

std::string read_file(const fs::path& directory, const std::string& name) {
  const fs::path path = directory / name;
  std::error_code error;
  if (!fs::exists(path, error)) fail(ErrorCode::kNotFound, "{}: no such file", path.string());
  if (!fs::is_regular_file(path, error) || !stays_inside(path, directory))
    fail(ErrorCode::kInvalidFile, "{}: not a regular file inside its directory", path.string());
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kMaxFileBytes)
    fail(ErrorCode::kInvalidFile, "{}: {} bytes, at most {} are read", path.string(), size, kMaxFileBytes);
  std::ifstream stream(path, std::ios::binary);
  std::string out(static_cast<std::size_t>(size), '\0');
  stream.read(out.data(), static_cast<std::streamsize>(out.size()));
  if (!stream || static_cast<std::uintmax_t>(stream.gcount()) != size)
    fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  return out;
}

Json read_json(const fs::path& directory, const std::string& name) {
  return parse_json(read_file(directory, name), (directory / name).string());
}

TokenizerConfig read_config(const fs::path& directory) {
  TokenizerConfig config;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!exists(directory, name)) continue;
    const Json document = read_json(directory, name);
    read_tokenizer_config(JsonView(document, (directory / name).string()), config);
  }
  if (exists(directory, "added_tokens.json")) {
    const Json document = read_json(directory, "added_tokens.json");
    read_added_tokens(JsonView(document, (directory / "added_tokens.json").string()), config);
  }
  return config;
}

std::string choose_file(const fs::path& directory) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json"}) {
    if (!exists(directory, name)) continue;
    if (std::string_view(name) == "vocab.json" && !exists(directory, "merges.txt")) continue;
    return name;
  }
  std::vector<std::string> ranks;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".tiktoken") ranks.push_back(it->path().filename().string());
  if (ranks.size() > 1) {
    std::sort(ranks.begin(), ranks.end());
    fail(ErrorCode::kInvalidFile, "{}: several rank files ({}): name one", directory.string(),
         fmt::join(ranks, ", "));
  }
  if (!ranks.empty()) return ranks[0];
  if (exists(directory, "vocab.txt")) return "vocab.txt";
  fail(ErrorCode::kNotFound,
       "{}: no tokenizer: expected tokenizer.json, tokenizer.model, vocab.json + merges.txt, *.tiktoken or "
       "vocab.txt",
       directory.string());
}

// Lines without their ends.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line);
  }
}

// vocab.json + merges.txt say nothing of how text is cut: the tokenizer's class does.
std::unique_ptr<TokenizerImpl> load_byte_level_bpe(const fs::path& directory, TokenizerConfig& config) {
  const bool prefix_space = config.add_prefix_space.value_or(false);
  Json document;
  std::string kind = config.tokenizer_class;
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  if (kind == "Qwen2Tokenizer") {
    document["normalizer"] = {{"type", "NFC"}};
    document["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", std::string(qwen_split_pattern())}}},
           {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"use_regex", false}}}}};
  } else if (kind.empty() || kind == "GPT2Tokenizer" || kind == "RobertaTokenizer" ||
             kind == "BartTokenizer") {
    document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}};
  } else {
    fail(ErrorCode::kUnsupported, "{}: tokenizer_class \"{}\" with vocab.json is not supported",
         directory.string(), config.tokenizer_class);
  }
  const std::string source = (directory / "vocab.json").string();
  document["model"] = {{"type", "BPE"}};
  document["decoder"] = {{"type", "ByteLevel"}};
  ModelTables tables;
  parse_vocab_json(read_file(directory, "vocab.json"), source, tables);
  tables.has_merges = true;
  const std::string merges_path = (directory / "merges.txt").string();
  for_each_line(read_file(directory, "merges.txt"), [&](std::string_view line) {
    if (!line.empty() && !line.starts_with("#version"))
      tables.merges.push_back(split_merge(line, merges_path));
  });
  auto impl = parse_tokenizer_document(document, tables, source);
  if (kind == "RobertaTokenizer" || kind == "BartTokenizer") {
    for (const char* name : {"<s>", "</s>"}) {
      const std::int32_t id = impl->find(name);
      if (id < 0) fail(ErrorCode::kInvalidFile, "{}: no token {}", source, name);
      (impl->post_processor.before.empty() ? impl->post_processor.before : impl->post_processor.after)
          .push_back(id);
    }
  }
  return impl;
}

// vocab.txt: BERT's WordPiece, one token a line.
std::unique_ptr<TokenizerImpl> load_word_piece(const fs::path& directory, TokenizerConfig& config) {
  const std::string source = (directory / "vocab.txt").string();
  const std::string text = read_file(directory, "vocab.txt");
  ModelTables tables;
  tables.has_vocab = true;
  for_each_line(text, [&](std::string_view line) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    tables.vocab.push_back({std::string(line), static_cast<std::int32_t>(tables.vocab.size())});
  });
  const Vocab vocab(tables.vocab, source);
  const auto name = [](const std::optional<AddedToken>& token, const char* fallback) {
    return token ? token->content : std::string(fallback);
  };
  const std::string unk = name(config.unk, "[UNK]");
  const std::string cls = name(config.cls, "[CLS]");
  const std::string sep = name(config.sep, "[SEP]");
  Json added = Json::array();
  for (const std::string& token : {name(config.pad, "[PAD]"), unk, cls, sep, name(config.mask, "[MASK]")})
    if (const std::int32_t id = vocab.find(token); id >= 0)
      added.push_back({{"content", token}, {"id", id}, {"special", true}, {"normalized", false}});
  if (vocab.find(cls) < 0 || vocab.find(sep) < 0)
    fail(ErrorCode::kInvalidFile, "{}: no token {} or {}", source, cls, sep);
  Json document;
  document["added_tokens"] = added;
  document["normalizer"] = {{"type", "BertNormalizer"},
                            {"lowercase", config.do_lower_case},
                            {"handle_chinese_chars", config.tokenize_chinese_chars},
                            {"strip_accents", config.strip_accents.value_or(config.do_lower_case)}};
  document["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  document["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {cls, vocab.find(cls)}}, {"sep", {sep, vocab.find(sep)}}};
  document["decoder"] = {{"type", "WordPiece"}};
  document["model"] = {{"type", "WordPiece"}, {"unk_token", unk}};
  return parse_tokenizer_document(document, tables, source);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_directory(const fs::path& directory, const TokenizerSource& hint) {
  TokenizerConfig config = read_config(directory);
  const std::string file = hint.file.empty() ? choose_file(directory) : hint.file;
  check_plain_name(file);
  const std::string source = (directory / file).string();
  std::unique_ptr<TokenizerImpl> impl;
  auto ids = AddedVocabulary::Ids::kAsGiven;
  if (file == "vocab.json") {
    impl = load_byte_level_bpe(directory, config);
  } else if (file == "vocab.txt") {
    impl = load_word_piece(directory, config);
  } else if (file.ends_with(".json")) {
    impl = parse_tokenizer_json(read_file(directory, file), source);
    ids = AddedVocabulary::Ids::kInOrder;
  } else if (file.ends_with(".tiktoken")) {
    impl = parse_tiktoken(read_file(directory, file), source, hint);
  } else if (file.ends_with(".model")) {
    impl = parse_sentencepiece(read_file(directory, file), source, config);
  } else {
    fail(ErrorCode::kUnsupported, "{}: a tokenizer file of unknown form", source);
  }
  apply_tokenizer_config(config, ids, *impl);
  return std::make_unique<Tokenizer>(std::move(impl));
}

std::unique_ptr<Tokenizer> Tokenizer::from_sentencepiece(std::string_view bytes,
                                                         std::string_view source_name) {
  TokenizerConfig config;
  auto impl = parse_sentencepiece(bytes, source_name, config);
  apply_tokenizer_config(config, AddedVocabulary::Ids::kAsGiven, *impl);
  return std::make_unique<Tokenizer>(std::move(impl));
}

}  // namespace triptych
