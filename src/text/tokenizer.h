// Text <-> token ids, as the published tokenizers do it. One class serves all file forms: Hugging Face
// tokenizer.json (BPE, Unigram, WordPiece, WordLevel), SentencePiece tokenizer.model, vocab.json +
// merges.txt, *.tiktoken, vocab.txt.
//
// Sources: Hugging Face `tokenizers` (behaviour checked id by id against the Python package), SentencePiece's
// sentencepiece_model.proto, tiktoken's rank files. What a file asks for and this build cannot do is an error
// that names it; nothing is skipped silently. All const methods may be called from several threads at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

/// Half-open range of bytes [begin, end) of an input text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  /// Let the post-processor add its tokens (BOS, [CLS] ... [SEP]).
  bool add_special_tokens = true;
  /// Parts of the text that a user typed, in ascending order, not overlapping. There no special added token
  /// may arise, whatever is typed, nor any of `never_in_plain_text`. Normalisation and pre-tokenisation still
  /// see the whole text.
  std::span<const ByteRange> plain_text = {};
  /// More tokens (by content) that must not arise inside plain_text, e.g. an image placeholder that is not
  /// special.
  std::span<const std::string> never_in_plain_text = {};
  /// Special tokens (by content) that may nevertheless be typed by a user, e.g. "<ref>" of Qwen-VL.
  std::span<const std::string> allowed_in_plain_text = {};
};

struct DecodeOptions {
  /// Leave out added tokens that are marked special.
  bool skip_special_tokens = false;
  /// Special tokens that are kept all the same, e.g. the marks of boxes.
  std::span<const std::int32_t> kept_special_tokens = {};
  /// Whether an added token marked special is left out.
  bool skips(std::int32_t special_id) const {
    return skip_special_tokens && std::find(kept_special_tokens.begin(), kept_special_tokens.end(),
                                            special_id) == kept_special_tokens.end();
  }
};

/// An added token as files describe it.
struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // eats whitespace on its left
  bool rstrip = false;       // eats whitespace on its right
  bool normalized = false;   // matched in the normalised text, not in the raw one
  bool special = false;
};

/// What a caller knows and the directory does not say.
struct TokenizerSource {
  /// A file of the directory (a plain base name) to use; empty: tokenizer.json, tokenizer.model,
  /// spiece.model, vocab.json + merges.txt, *.tiktoken, vocab.txt, the first that exists. The name says the
  /// form.
  std::string file = {};
  /// *.tiktoken only: the special tokens, with ids (-1: the ids that follow the last rank, in order). Empty:
  /// Qwen's table (tiktoken_file.h) for a file named qwen.tiktoken, else none.
  std::vector<AddedToken> tiktoken_specials = {};
  /// *.tiktoken only: the split pattern; empty means Qwen's.
  std::string tiktoken_pattern = {};
};

class TokenizerImpl;

class Tokenizer {
 public:
  /// Reads a checkpoint directory: the tokenizer file (see TokenizerSource::file), then tokenizer_config.json
  /// (added_tokens_decoder, add_bos_token, add_eos_token, bos/eos/pad/unk tokens,
  /// clean_up_tokenization_spaces, legacy), special_tokens_map.json and added_tokens.json where present.
  /// Throws Error(kNotFound) when no tokenizer file exists, kInvalidFile, kUnsupported (named), kIo.
  static std::unique_ptr<Tokenizer> from_directory(const std::filesystem::path& directory,
                                                   const TokenizerSource& hint = {});
  /// A tokenizer.json held in memory; `source_name` goes into errors. Throws as from_directory.
  static std::unique_ptr<Tokenizer> from_json(std::string_view text, std::string_view source_name);
  /// A SentencePiece tokenizer.model (protobuf bytes) held in memory. Throws as from_directory.
  static std::unique_ptr<Tokenizer> from_sentencepiece(std::string_view bytes, std::string_view source_name);

  explicit Tokenizer(std::unique_ptr<const TokenizerImpl> impl);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Ids of a text. Bytes that are not UTF-8 count as U+FFFD. Throws Error(kInvalidArgument) for bad ranges,
  /// and kInvalidArgument when the vocabulary has no token for a part of the text (a BPE without unk and byte
  /// fallback drops such parts, as the reference does).
  std::vector<std::int32_t> encode(std::string_view utf8, const EncodeOptions& options = {}) const;

  /// Text of ids; always valid UTF-8 (bytes that form no character become U+FFFD as the reference's decoder
  /// writes them). Throws Error(kInvalidArgument) for an id outside [0, vocab_size()).
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options = {}) const;

  /// The id whose content is exactly this, or nothing.
  std::optional<std::int32_t> token_to_id(std::string_view content) const;
  /// Content as stored in the vocabulary ("Ġthe", "▁the", "<0x0A>"); empty for an id that no token has.
  std::string id_to_token(std::int32_t id) const;
  /// One more than the largest id. A model's embedding may have more rows: those are never valid ids.
  std::int32_t vocab_size() const;
  /// True for an added token marked special.
  bool is_special(std::int32_t id) const;
  /// All added tokens, by ascending id.
  std::vector<AddedToken> added_tokens() const;

  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  std::optional<std::int32_t> pad_id() const;
  std::optional<std::int32_t> unk_id() const;

  const TokenizerImpl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const TokenizerImpl> impl_;
};

}  // namespace triptych
