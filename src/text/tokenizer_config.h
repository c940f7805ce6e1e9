// tokenizer_config.json and the older files beside it (special_tokens_map.json, added_tokens.json): named
// tokens, flags of added tokens, what is put around a text. Followed as transformers 5.24 (TokenizersBackend)
// follows them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace triptych {

struct TokenizerConfig {
  std::string tokenizer_class;
  std::optional<AddedToken> bos, eos, pad, unk, cls, sep, mask;
  std::vector<AddedToken> added;          // added_tokens_decoder, by id; or added_tokens.json
  std::vector<AddedToken> extra_special;  // additional_special_tokens, extra_special_tokens
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_prefix_space;
  std::optional<bool> legacy;
  bool clean_up_spaces = false;
  // BERT's
  bool do_lower_case = true;
  bool tokenize_chinese_chars = true;
  std::optional<bool> strip_accents;
};

/// Merges a document's members into `config`; members that are already set stay.
void read_tokenizer_config(const JsonView& view, TokenizerConfig& config);
/// added_tokens.json: {"content": id}.
void read_added_tokens(const JsonView& view, TokenizerConfig& config);

/// Applies what is said of tokens, of BOS and EOS, and of spaces.
void apply_tokenizer_config(const TokenizerConfig& config, AddedVocabulary::Ids ids, TokenizerImpl& impl);

}  // namespace triptych
