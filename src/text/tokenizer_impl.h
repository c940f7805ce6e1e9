// What a Tokenizer is made of. Loaders (tokenizer_json.cc, tokenizer_directory.cc, tiktoken_file.cc,
// sentencepiece_file.cc) fill it, tokenizer.cc runs it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "text/added_vocabulary.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/token_model.h"
#include "text/tokenizer.h"

namespace triptych {

struct ModelTables;

class TokenizerImpl {
 public:
  std::string source;                           // file name, for errors
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: a segment is one piece
  std::unique_ptr<TokenModel> model;
  AddedVocabulary added;
  PostProcessor post_processor;
  DecoderChain decoder;
  std::optional<std::int32_t> bos, eos, pad, unk;

  /// Adds tokens and makes them searchable.
  void add_tokens(std::span<const AddedToken> tokens, AddedVocabulary::Ids ids);
  std::int32_t find(std::string_view content) const;
  /// The content that decoding starts from.
  std::string_view decoded_content(std::int32_t id) const;
  bool has_id(std::int32_t id) const;
  std::int32_t id_limit() const;
  std::vector<std::int32_t> encode(std::string_view utf8, const EncodeOptions& options) const;

 private:
  struct Plain;
  struct Work;
  Plain plain_rules(const EncodeOptions& options) const;
  void encode_segment(std::string_view text, std::size_t offset, const Plain& plain, Work& work) const;
  void encode_pieces(std::string_view text, std::span<const std::uint32_t> origin, bool at_start,
                     bool is_plain, Work& work) const;
};

/// The parts of a tokenizer.json. Throws as Tokenizer::from_json.
std::unique_ptr<TokenizerImpl> parse_tokenizer_json(std::string_view text, std::string_view source_name);
/// The same from a document and the model's tables; loaders of other forms write them.
std::unique_ptr<TokenizerImpl> parse_tokenizer_document(const Json& document, const ModelTables& tables,
                                                        std::string_view source_name);

}  // namespace triptych
