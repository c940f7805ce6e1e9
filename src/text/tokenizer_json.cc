// tokenizer.json: the serialised form of Hugging Face tokenizers ("version": "1.0"). Its members "truncation"
// and "padding" belong to training batches; as in transformers they do not touch a prompt here.
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "text/bpe.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_tables.h"
#include "text/unigram.h"
#include "text/word_models.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{512} << 20;
std::string optional_string(const JsonView& view, std::string_view key) {
  const auto member = view.find(key);
  return member ? member->as_string() : std::string();
}

Vocab make_vocab(const JsonView& model, const ModelTables& tables) {
  if (!tables.has_vocab) {
    if (!model.has("vocab")) fail(ErrorCode::kInvalidFile, "{}: \"vocab\" is missing", model.path());
    model.at("vocab").fail_expected("tokens and ids");
  }
  return Vocab(tables.vocab, fmt::format("{}.vocab", model.path()));
}

std::vector<BpeMerge> make_merges(const JsonView& model, const ModelTables& tables, const Vocab& vocab,
                                  std::string_view prefix) {
  const std::string path = fmt::format("{}.merges", model.path());
  if (tables.merges.empty()) fail(ErrorCode::kInvalidFile, "{}: the merges table of a BPE is empty", path);
  std::vector<BpeMerge> out;
  out.reserve(tables.merges.size());
  std::string product;
  for (const auto& [left, right] : tables.merges) {
    const std::size_t i = out.size();
    if (!right.starts_with(prefix))
      fail(ErrorCode::kInvalidFile, "{}[{}]: \"{}\" lacks the prefix \"{}\"", path, i, right, prefix);
    product = left;
    product.append(right, prefix.size());
    const BpeMerge merge{vocab.find(left), vocab.find(right), vocab.find(product),
                         static_cast<std::uint32_t>(i)};
    if (merge.left < 0 || merge.right < 0 || merge.product < 0)
      fail(ErrorCode::kInvalidFile, "{}[{}]: \"{}\" + \"{}\" = \"{}\": not all three are in the vocabulary",
           path, i, left, right, product);
    out.push_back(merge);
  }
  return out;
}

std::unique_ptr<TokenModel> parse_bpe(const JsonView& view, const ModelTables& tables, bool long_pieces) {
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
  Vocab vocab = make_vocab(view, tables);
  auto merges = make_merges(view, tables, vocab, options.continuing_subword_prefix);
  return make_bpe(std::move(vocab), std::move(merges), std::move(options), view.path());
}

std::unique_ptr<TokenModel> parse_unigram(const JsonView& view, const ModelTables& tables) {
  Vocab vocab = make_vocab(view, tables);
  if (tables.scores.size() != tables.vocab.size())
    fail(ErrorCode::kInvalidFile, "{}.vocab: expected an array of [token, score]", view.path());
  UnigramOptions options;
  options.byte_fallback = view.get_bool("byte_fallback", false);
  options.unk_id =
      static_cast<std::int32_t>(view.get_int("unk_id", -1, 0, std::numeric_limits<std::int32_t>::max()));
  return make_unigram(std::move(vocab), tables.scores, options, view.path());
}

std::unique_ptr<TokenModel> parse_word_piece(const JsonView& view, const ModelTables& tables) {
  WordPieceOptions options;
  options.unk_token = view.get_string("unk_token", options.unk_token);
  options.continuing_subword_prefix =
      view.get_string("continuing_subword_prefix", options.continuing_subword_prefix);
  options.max_input_chars_per_word =
      static_cast<std::size_t>(view.get_int("max_input_chars_per_word", 100, 0));
  return make_word_piece(make_vocab(view, tables), std::move(options));
}

// Files from before the type was written are told apart by their members.
std::string model_type(const JsonView& view, const ModelTables& tables) {
  if (view.has("type")) return view.at("type").as_string();
  if (tables.has_merges) return "BPE";
  if (view.has("max_input_chars_per_word")) return "WordPiece";
  if (view.has("unk_id")) return "Unigram";
  return "WordLevel";
}

std::unique_ptr<TokenModel> parse_model(const JsonView& view, const ModelTables& tables, bool long_pieces) {
  const std::string type = model_type(view, tables);
  if (type == "BPE") return parse_bpe(view, tables, long_pieces);
  if (type == "Unigram") return parse_unigram(view, tables);
  if (type == "WordPiece") return parse_word_piece(view, tables);
  if (type == "WordLevel")
    return make_word_level(make_vocab(view, tables), view.get_string("unk_token", "<unk>"));
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
  ModelTables tables;
  const Json document = parse_with_tables(text, source_name, tables);
  return parse_tokenizer_document(document, tables, source_name);
}

std::unique_ptr<TokenizerImpl> parse_tokenizer_document(const Json& document, const ModelTables& tables,
                                                        std::string_view source_name) {
  const JsonView root(document, std::string(source_name));
  if (const std::string version = root.get_string("version", "1.0"); version != "1.0")
    fail(ErrorCode::kUnsupported, "{}: version \"{}\" is not supported, expected \"1.0\"", source_name,
         version);
  auto impl = std::make_unique<TokenizerImpl>();
  impl->source = source_name;
  impl->normalizer = parse_normalizer(member_or_null(root, "normalizer"));
  impl->pre_tokenizer = parse_pre_tokenizer(member_or_null(root, "pre_tokenizer"));
  const bool long_pieces = impl->pre_tokenizer == nullptr || impl->pre_tokenizer->long_pieces();
  impl->model = parse_model(root.at("model"), tables, long_pieces);
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
