// Added tokens: found in the text before the model sees it, raw ones in the raw text, `normalized` ones in
// the normalised text. Behaviour as in Hugging Face tokenizers 0.23: leftmost, longest first; flags checked
// afterwards; whatever follows a match that its flags discard is searched on behind it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/normalizer.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/vocab.h"

namespace triptych {

class AddedVocabulary {
 public:
  /// A stretch of a text: an added token (id >= 0) or what lies between.
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = -1;
  };
  /// May the token with this id match at bytes [begin, end)?
  using Filter = std::function<bool(std::int32_t id, std::size_t begin, std::size_t end)>;

  enum class Ids {
    kInOrder,  // as the reference numbers them: after the model's tokens, whatever `id` says (logged)
    kAsGiven,  // `id` where it is >= 0; else the next free one
  };
  /// Registers tokens in order. A token that the model or an earlier call knows keeps that id, others get one
  /// by `ids`. A known content takes the new flags. Throws Error(kInvalidFile) for contents that are too long
  /// or not UTF-8, and for given ids that are taken or out of range.
  void add(std::span<const AddedToken> tokens, Ids ids, const Vocab& model, const Normalizer* normalizer,
           std::string_view where);
  /// Builds the search structures; call once after all tokens are in.
  void build();

  /// Segments of a raw text. A null filter lets everything match.
  void split_raw(std::string_view text, const Filter* filter, std::vector<Segment>& out) const {
    split(raw_, text, filter, out);
  }
  /// Segments of a normalised text.
  void split_normalized(std::string_view text, const Filter* filter, std::vector<Segment>& out) const {
    split(normalized_, text, filter, out);
  }
  bool has_normalized() const { return !normalized_.trie.empty(); }

  /// The added token with this id, or null.
  const AddedToken* find(std::int32_t id) const;
  std::int32_t find(std::string_view content) const;
  /// What decoding starts from: the normalised content where that is what the token matched.
  std::string_view decoded_content(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int32_t id_limit() const { return id_limit_; }
  /// By ascending id.
  std::vector<AddedToken> tokens() const;

 private:
  struct Entry {
    AddedToken token;
    std::string matched;  // the content, normalised where the token is
  };
  struct Set {
    Trie trie;
    std::vector<bool> first_bytes;
  };
  void split(const Set& set, std::string_view text, const Filter* filter, std::vector<Segment>& out) const;

  std::unordered_map<std::string, std::int32_t> by_content_;
  std::unordered_map<std::int32_t, Entry> by_id_;
  Set raw_;
  Set normalized_;
  std::int32_t id_limit_ = 0;
};

}  // namespace triptych
