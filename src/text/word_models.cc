#include "text/word_models.h"

#include "base/error.h"
#include "text/trie.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

bool is_banned(std::int32_t id, const IdSet* banned) { return banned != nullptr && banned->contains(id); }

class WordPiece final : public TokenModel {
 public:
  WordPiece(Vocab vocab, WordPieceOptions options) : vocab_(std::move(vocab)), options_(std::move(options)) {
    std::vector<Trie::Key> keys;
    for (std::int32_t id = 0; id < vocab_.id_limit(); ++id) {
      const std::string_view content = vocab_.content(id);
      if (!content.empty()) keys.emplace_back(content, vocab_.find(content));
    }
    trie_ = Trie(std::move(keys));
    unk_ = vocab_.find(options_.unk_token);
    // Where a continuing piece starts in the trie.
    continuing_ = trie_.empty() ? kNowhere : Trie::kRoot;
    for (const char c : options_.continuing_subword_prefix) {
      if (continuing_ == kNowhere) break;
      continuing_ = trie_.child(continuing_, c);
      if (continuing_ == Trie::kRoot) continuing_ = kNowhere;
    }
  }

  const Vocab& vocab() const override { return vocab_; }

  void encode(std::string_view word, const PieceContext& context,
              std::vector<std::int32_t>& out) const override {
    const std::size_t before = out.size();
    if (count_characters(word) <= options_.max_input_chars_per_word && pieces(word, context.banned, out))
      return;
    out.resize(before);
    if (unk_ < 0)
      fail(ErrorCode::kInvalidArgument, "the text needs the unknown token \"{}\", which the vocabulary lacks",
           options_.unk_token);
    out.push_back(unk_);
  }

 private:
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  static std::size_t count_characters(std::string_view text) {
    std::size_t n = 0;
    for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    return n;
  }

  bool pieces(std::string_view word, const IdSet* banned, std::vector<std::int32_t>& out) const {
    std::size_t at = 0;
    while (at < word.size()) {
      std::uint32_t node = at == 0 ? (trie_.empty() ? kNowhere : Trie::kRoot) : continuing_;
      std::int32_t found = -1;
      std::size_t end = at;
      for (std::size_t i = at; node != kNowhere && i < word.size(); ++i) {
        node = trie_.child(node, word[i]);
        if (node == Trie::kRoot) break;
        const std::int32_t id = trie_.value(node);
        if (id < 0 || is_banned(id, banned)) continue;
        found = id;
        end = i + 1;
      }
      if (found < 0) return false;
      out.push_back(found);
      at = end;
    }
    return true;
  }

  Vocab vocab_;
  WordPieceOptions options_;
  Trie trie_;
  std::int32_t unk_ = -1;
  std::uint32_t continuing_ = kNowhere;
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(Vocab vocab, std::string unk_token)
      : vocab_(std::move(vocab)), unk_token_(std::move(unk_token)) {}
  const Vocab& vocab() const override { return vocab_; }
  void encode(std::string_view word, const PieceContext& context,
              std::vector<std::int32_t>& out) const override {
    std::int32_t id = vocab_.find(word);
    if (id < 0 || is_banned(id, context.banned)) id = vocab_.find(unk_token_);
    if (id < 0)
      fail(ErrorCode::kInvalidArgument, "the text needs the unknown token \"{}\", which the vocabulary lacks",
           unk_token_);
    out.push_back(id);
  }

 private:
  Vocab vocab_;
  std::string unk_token_;
};

}  // namespace

std::unique_ptr<TokenModel> make_word_piece(Vocab vocab, WordPieceOptions options) {
  return std::make_unique<WordPiece>(std::move(vocab), std::move(options));
}

std::unique_ptr<TokenModel> make_word_level(Vocab vocab, std::string unk_token) {
  return std::make_unique<WordLevel>(std::move(vocab), std::move(unk_token));
}

}  // namespace triptych
