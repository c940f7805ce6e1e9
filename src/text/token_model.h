// The model of a tokenizer: pieces of text -> ids. BPE, Unigram, WordPiece, WordLevel and SentencePiece stand
// behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace triptych {

/// A set of ids, e.g. those that text of a user must not become.
class IdSet {
 public:
  void insert(std::int32_t id) {
    if (id < 0) return;
    if (static_cast<std::size_t>(id) >= bits_.size()) bits_.resize(static_cast<std::size_t>(id) + 1);
    bits_[static_cast<std::size_t>(id)] = true;
  }
  void erase(std::int32_t id) {
    if (contains(id)) bits_[static_cast<std::size_t>(id)] = false;
  }
  bool contains(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < bits_.size() && bits_[static_cast<std::size_t>(id)];
  }

 private:
  std::vector<bool> bits_;
};

/// Memory of one encode call: what words gave before, and buffers that are used again. Not shared between
/// threads.
class EncodeScratch {
 public:
  virtual ~EncodeScratch() = default;
};

struct PieceContext {
  /// Ids that must not be produced, or null.
  const IdSet* banned = nullptr;
  EncodeScratch* scratch = nullptr;  // from the same model's make_scratch, or null
  /// The piece starts the input (no text and no added token before it).
  bool at_start = false;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of one piece (valid UTF-8, not empty). Throws Error(kInvalidArgument) when the
  /// vocabulary cannot express it and has no unknown token.
  virtual void encode(std::string_view piece, const PieceContext& context,
                      std::vector<std::int32_t>& out) const = 0;
  virtual const Vocab& vocab() const = 0;
  virtual std::unique_ptr<EncodeScratch> make_scratch() const { return nullptr; }
  /// Ids that stand for one raw byte ("<0x41>"), never to be matched by text that spells their name.
  virtual void add_byte_ids(IdSet&) const {}
  /// True for a BPE: clean-up of spaces does not apply to its text, as in the reference.
  virtual bool is_bpe() const { return false; }
};

/// Ids of "<0x00>" ... "<0xFF>", -1 where the vocabulary has none.
std::vector<std::int32_t> byte_token_ids(const Vocab& vocab);

}  // namespace triptych
