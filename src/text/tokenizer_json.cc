// tokenizer.json: the serialised form of Hugging Face tokenizers ("version": "1.0"). Its members "truncation"
// and "padding" belong to training batches; as in transformers they do not touch a prompt here.
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/bpe.h"
#include "text/tokenizer_impl.h"
#include "text/unigram.h"
#include "text/utf8.h"
#include "text/word_models.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
constexpr std::size_t kMaxTokens = 1 << 24;

std::int32_t as_id(const Json& value, const JsonView& parent, std::string_view token) {
  // The table is large: a path is built only for an error.
  const std::int64_t id = value.is_number_integer() ? value.get<std::int64_t>() : -1;
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
    JsonView(value, fmt::format("{}[\"{}\"]", parent.path(), token)).fail_expected("an id >= 0");
  return static_cast<std::int32_t>(id);
}

// {"token": id, ...}
Vocab parse_vocab(const JsonView& view) {
  if (!view.is_object()) view.fail_expected("an object of tokens and ids");
  std::vector<Vocab::Entry> entries;
  entries.reserve(view.raw().size());
  for (const auto& [token, id] : view.raw().items()) entries.push_back({token, as_id(id, view, token)});
  return Vocab(entries, view.path());
}

std::string optional_string(const JsonView& view, std::string_view key) {
  const auto member = view.find(key);
  return member ? member->as_string() : std::string();
}

// "a b" or ["a", "b"]
std::pair<std::string_view, std::string_view> merge_parts(const Json& merge, const JsonView& merges,
                                                          std::size_t index) {
  const auto bad = [&](std::string_view what) {
    JsonView(merge, fmt::format("{}[{}]", merges.path(), index)).fail_expected(what);
  };
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      bad("two tokens with one space between");
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string())
    bad("\"a b\" or [\"a\", \"b\"]");
  return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
}

std::vector<BpeMerge> parse_merges(const JsonView& view, const Vocab& vocab, std::string_view prefix) {
  if (!view.is_array()) view.fail_expected("an array of merges");
  const Json& merges = view.raw();
  if (merges.empty()) fail(ErrorCode::kInvalidFile, "{}: the merges table of a BPE is empty", view.path());
  std::vector<BpeMerge> out;
  out.reserve(merges.size());
  std::string product;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    // Files of older versions start with a line "#version: ...".
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = merge_parts(merges[i], view, i);
    product.assign(left);
    if (!right.starts_with(prefix))
      fail(ErrorCode::kInvalidFile, "{}[{}]: \"{}\" lacks the prefix \"{}\"", view.path(), i, right, prefix);
    product.append(right.substr(prefix.size()));
    const BpeMerge merge{vocab.find(left), vocab.find(right), vocab.find(product),
                         static_cast<std::uint32_t>(i)};
    if (merge.left < 0 || merge.right < 0 || merge.product < 0)
      fail(ErrorCode::kInvalidFile, "{}[{}]: \"{}\" + \"{}\" = \"{}\": not all three are in the vocabulary",
           view.path(), i, left, right, product);
    out.push_back(merge);
  }
  return out;
}

std::unique_ptr<TokenModel> parse_bpe(const JsonView& view, bool long_pieces) {
  if (const auto dropout = view.find("dropout"); dropout && dropout->as_double() != 0.0)
    fail(ErrorCode::kUnsupported, "{}: dropout {} is not supported: ids would be random", view.path(),
         dropout->as_double());
  BpeOptions options;
  options.unk_token = optional_string(view, "unk_token");
  options.continuing_subword_prefix = optional_string(view, "continuing_subword_prefix");
  options.end_of_word_suffix = optional_string(view, "end_of_word_suffix");
  options.fuse_unk = view.get_bool("fuse_unk", false);
  options.byte_fallback = view.get_bool("byte_fallback", false);
  options.ignore_merges = view.get_bool("ignore_merges", false);
  options.long_pieces = long_pieces;
  Vocab vocab = parse_vocab(view.at("vocab"));
  auto merges = parse_merges(view.at("merges"), vocab, options.continuing_subword_prefix);
  return make_bpe(std::move(vocab), std::move(merges), std::move(options), view.path());
}

std::unique_ptr<TokenModel> parse_unigram(const JsonView& view) {
  const JsonView table = view.at("vocab");
  if (!table.is_array()) table.fail_expected("an array of [token, score]");
  if (table.raw().size() > kMaxTokens) table.fail_expected(fmt::format("at most {} tokens", kMaxTokens));
  std::vector<Vocab::Entry> entries;
  std::vector<double> scores;
  entries.reserve(table.raw().size());
  for (const Json& item : table.raw()) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number())
      JsonView(item, fmt::format("{}[{}]", table.path(), entries.size())).fail_expected("[token, score]");
    entries.push_back({item[0].get<std::string>(), static_cast<std::int32_t>(entries.size())});
    scores.push_back(item[1].get<double>());
  }
  UnigramOptions options;
  options.byte_fallback = view.get_bool("byte_fallback", false);
  options.unk_id =
      static_cast<std::int32_t>(view.get_int("unk_id", -1, 0, std::numeric_limits<std::int32_t>::max()));
  return make_unigram(Vocab(entries, table.path()), std::move(scores), options, view.path());
}

std::unique_ptr<TokenModel> parse_word_piece(const JsonView& view) {
  WordPieceOptions options;
  options.unk_token = view.get_string("unk_token", options.unk_token);
  options.continuing_subword_prefix =
      view.get_string("continuing_subword_prefix", options.continuing_subword_prefix);
  options.max_input_chars_per_word =
      static_cast<std::size_t>(view.get_int("max_input_chars_per_word", 100, 0));
  return make_word_piece(parse_vocab(view.at("vocab")), std::move(options));
}

// Files from before the type was written are told apart by their members.
std::string model_type(const JsonView& view) {
  if (view.has("type")) return view.at("type").as_string();
  if (view.has("merges")) return "BPE";
  if (view.has("max_input_chars_per_word")) return "WordPiece";
  if (view.has("unk_id")) return "Unigram";
  return "WordLevel";
}

std::unique_ptr<TokenModel> parse_model(const JsonView& view, bool long_pieces) {
  const std::string type = model_type(view);
  if (type == "BPE") return parse_bpe(view, long_pieces);
  if (type == "Unigram") return parse_unigram(view);
  if (type == "WordPiece") return parse_word_piece(view);
  if (type == "WordLevel")
    return make_word_level(parse_vocab(view.at("vocab")), view.get_string("unk_token", "<unk>"));
  fail(ErrorCode::kUnsupported, "{}: model type \"{}\" is not supported", view.path(), type);
}

std::vector<AddedToken> parse_added_tokens(const JsonView& view) {
  std::vector<AddedToken> out;
  for (const JsonView& item : view.items()) {
    AddedToken token;
    token.content = item.at("content").as_string();
    token.id = static_cast<std::int32_t>(item.at("id").as_int(0, std::numeric_limits<std::int32_t>::max()));
    token.single_word = item.get_bool("single_word", false);
    token.lstrip = item.get_bool("lstrip", false);
    token.rstrip = item.get_bool("rstrip", false);
    token.normalized = item.get_bool("normalized", true);
    token.special = item.get_bool("special", false);
    out.push_back(std::move(token));
  }
  return out;
}

JsonView member_or_null(const JsonView& view, const char* key) {
  static const Json null;
  const auto member = view.find(key);
  return member ? *member : JsonView(null, fmt::format("{}.{}", view.path(), key));
}

}  // namespace

std::unique_ptr<TokenizerImpl> parse_tokenizer_json(std::string_view text, std::string_view source_name) {
  if (text.size() > kMaxFileBytes)
    fail(ErrorCode::kInvalidFile, "{}: {} bytes, at most {} are read", source_name, text.size(),
         kMaxFileBytes);
  return parse_tokenizer_document(parse_json(text, source_name), source_name);
}

std::unique_ptr<TokenizerImpl> parse_tokenizer_document(const Json& document, std::string_view source_name) {
  const JsonView root(document, std::string(source_name));
  if (const std::string version = root.get_string("version", "1.0"); version != "1.0")
    fail(ErrorCode::kUnsupported, "{}: version \"{}\" is not supported, expected \"1.0\"", source_name,
         version);
  auto impl = std::make_unique<TokenizerImpl>();
  impl->source = source_name;
  impl->normalizer = parse_normalizer(member_or_null(root, "normalizer"));
  impl->pre_tokenizer = parse_pre_tokenizer(member_or_null(root, "pre_tokenizer"));
  const bool long_pieces = impl->pre_tokenizer == nullptr || impl->pre_tokenizer->long_pieces();
  impl->model = parse_model(root.at("model"), long_pieces);
  impl->post_processor = parse_post_processor(member_or_null(root, "post_processor"));
  impl->decoder = parse_decoder(member_or_null(root, "decoder"));
  std::vector<AddedToken> added;
  if (const auto tokens = root.find("added_tokens")) added = parse_added_tokens(*tokens);
  impl->add_tokens(added, AddedVocabulary::Ids::kInOrder);
  for (const auto& ids : {impl->post_processor.before, impl->post_processor.after})
    for (const std::int32_t id : ids)
      if (!impl->has_id(id))
        fail(ErrorCode::kInvalidFile, "{}: post_processor: id {} is not in the vocabulary", source_name, id);
  // The unknown token of the model.
  const JsonView model = root.at("model");
  if (const auto token = model.find("unk_token"); token && token->is_string()) {
    if (const std::int32_t id = impl->find(token->as_string()); id >= 0) impl->unk = id;
  } else if (const auto id = model.find("unk_id")) {
    impl->unk = static_cast<std::int32_t>(id->as_int());
  }
  return impl;
}

}  // namespace triptych
