#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

#include "base/error.h"
#include "text/bpe_tables.h"
#include "text/word_cache.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::uint32_t kNoRank = MergeTable::kNoRank;
constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kShortWord = 40;  // symbols; above it the heap wins
constexpr std::size_t kLongPiece = 48;  // bytes; below it cutting does not pay
constexpr std::size_t kMaxCachedBytes = 128;

struct Symbol {
  std::int32_t id;
  std::uint32_t rank;  // of the merge with the next symbol
  std::int32_t product;
};

struct Link {
  std::int32_t id;  // -1: merged into its left neighbour
  std::uint32_t rank;
  std::int32_t product;
  std::uint32_t previous;
  std::uint32_t next;
};

struct Scratch final : EncodeScratch {
  WordCache words;
  WordCache plain_words;  // with banned ids
  std::vector<std::int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<Link> links;
};

class Bpe final : public TokenModel {
 public:
  Bpe(Vocab vocab, const std::vector<BpeMerge>& merges, BpeOptions options, std::string_view where)
      : vocab_(std::move(vocab)),
        merges_(merges),
        options_(std::move(options)),
        bytes_(byte_token_ids(vocab_)) {
    if (!options_.unk_token.empty()) unk_ = vocab_.find(options_.unk_token);
    if (!options_.unk_token.empty() && unk_ < 0)
      fail(ErrorCode::kInvalidFile, "{}: unk_token \"{}\" is not in the vocabulary", where,
           options_.unk_token);
    decorated_ = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
    std::string text;
    for (char32_t c = 0; c < kDirect; ++c) {
      text.clear();
      utf8::append(text, c);
      direct_[c] = vocab_.find(text);
    }
    can_cut_ = options_.long_pieces && !decorated_ && !options_.ignore_merges;
    // Symbols that do not spell their text would break the argument for cutting.
    IdSet opaque;
    opaque.insert(unk_);
    add_byte_ids(opaque);
    for (const BpeMerge& m : merges) {
      if (!can_cut_) break;
      if (opaque.contains(m.left) || opaque.contains(m.right))
        can_cut_ = false;
      else
        pairs_.add(vocab_.content(m.product));
    }
  }

  const Vocab& vocab() const override { return vocab_; }
  bool is_bpe() const override { return true; }
  std::unique_ptr<EncodeScratch> make_scratch() const override { return std::make_unique<Scratch>(); }
  void add_byte_ids(IdSet& set) const override {
    if (!options_.byte_fallback) return;
    for (const std::int32_t id : bytes_) set.insert(id);
  }

  void encode(std::string_view piece, const PieceContext& context,
              std::vector<std::int32_t>& out) const override {
    Scratch local;
    Scratch& scratch = context.scratch != nullptr ? static_cast<Scratch&>(*context.scratch) : local;
    if (!can_cut_ || piece.size() < kLongPiece) {
      encode_word(piece, context.banned, scratch, out);
      return;
    }
    const std::size_t before = out.size();
    std::size_t start = 0;
    std::size_t i = 0;
    char32_t left = utf8::next(piece, i);
    while (i < piece.size()) {
      std::size_t after = i;
      const char32_t right = utf8::next(piece, after);
      if (!pairs_.contains(left, right)) {
        if (!encode_known(piece.substr(start, i - start), context.banned, scratch, out)) {
          // Unknown characters may fuse across cuts: take the piece as a whole.
          out.resize(before);
          encode_word(piece, context.banned, scratch, out);
          return;
        }
        start = i;
      }
      left = right;
      i = after;
    }
    if (!encode_known(piece.substr(start), context.banned, scratch, out)) {
      out.resize(before);
      encode_word(piece, context.banned, scratch, out);
    }
  }

 private:
  static constexpr char32_t kDirect = 0x800;

  static WordCache& cache_of(Scratch& scratch, const IdSet* banned) {
    return banned == nullptr ? scratch.words : scratch.plain_words;
  }

  void encode_word(std::string_view word, const IdSet* banned, Scratch& scratch,
                   std::vector<std::int32_t>& out) const {
    encode_cached(word, banned, scratch, out, nullptr);
  }
  // False when the word has a character that only the unknown token (or nothing) can stand for.
  bool encode_known(std::string_view word, const IdSet* banned, Scratch& scratch,
                    std::vector<std::int32_t>& out) const {
    bool known = true;
    encode_cached(word, banned, scratch, out, &known);
    return known;
  }

  void encode_cached(std::string_view word, const IdSet* banned, Scratch& scratch,
                     std::vector<std::int32_t>& out, bool* known) const {
    if (word.size() > kMaxCachedBytes) {
      encode_uncached(word, banned, scratch, out, known);
      return;
    }
    WordCache& cache = cache_of(scratch, banned);
    if (cache.find(word, out)) return;
    const std::size_t before = out.size();
    encode_uncached(word, banned, scratch, out, known);
    if (known == nullptr || *known) cache.insert(word, std::span<const std::int32_t>(out).subspan(before));
  }

  void encode_uncached(std::string_view word, const IdSet* banned, Scratch& scratch,
                       std::vector<std::int32_t>& out, bool* known) const {
    if (options_.ignore_merges) {
      const std::int32_t whole = vocab_.find(word);
      if (whole >= 0 && !is_banned(whole, banned)) {
        out.push_back(whole);
        return;
      }
    }
    scratch.ids.clear();
    if (decorated_)
      initial_decorated(word, banned, scratch.ids);
    else if (!initial_plain(word, banned, scratch.ids) && known != nullptr) {
      *known = false;
      return;
    }
    if (scratch.ids.size() <= kShortWord)
      merge_short(scratch, banned, out);
    else
      merge_long(scratch, banned, out);
  }

  static bool is_banned(std::int32_t id, const IdSet* banned) {
    return banned != nullptr && banned->contains(id);
  }

  std::int32_t find_character(char32_t c, std::string_view text, const IdSet* banned) const {
    const std::int32_t id = c < kDirect ? direct_[c] : vocab_.find(text);
    return is_banned(id, banned) ? -1 : id;
  }

  // Collects symbols; an unknown character waits so that neighbours can fuse with it. As in the reference it
  // waits past bytes of a fallback.
  struct Unknown {
    bool pending = false;
  };
  void put_unknown(Unknown& unknown, std::vector<std::int32_t>& ids) const {
    if (unk_ < 0) return;
    if (unknown.pending && !options_.fuse_unk) ids.push_back(unk_);
    unknown.pending = true;
  }
  bool put_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (!options_.byte_fallback) return false;
    for (const char c : text)
      if (bytes_[static_cast<unsigned char>(c)] < 0) return false;
    for (const char c : text) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
    return true;
  }

  // False when a character had no token.
  bool initial_plain(std::string_view word, const IdSet* banned, std::vector<std::int32_t>& ids) const {
    Unknown unknown;
    bool all_known = true;
    for (std::size_t i = 0; i < word.size();) {
      const std::size_t start = i;
      const char32_t c = utf8::next(word, i);
      const std::string_view text = word.substr(start, i - start);
      const std::int32_t id = find_character(c, text, banned);
      if (id >= 0) {
        if (unknown.pending) ids.push_back(unk_);
        unknown.pending = false;
        ids.push_back(id);
      } else if (!put_bytes(text, ids)) {
        all_known = false;
        put_unknown(unknown, ids);
      }
    }
    if (unknown.pending) ids.push_back(unk_);
    return all_known;
  }

  void initial_decorated(std::string_view word, const IdSet* banned, std::vector<std::int32_t>& ids) const {
    Unknown unknown;
    std::string text;
    for (std::size_t i = 0; i < word.size();) {
      const std::size_t start = i;
      i += utf8::length_of(word[i]);
      text.clear();
      if (start > 0) text.append(options_.continuing_subword_prefix);
      text.append(word.substr(start, i - start));
      if (i >= word.size()) text.append(options_.end_of_word_suffix);
      const std::int32_t id = vocab_.find(text);
      if (id >= 0 && !is_banned(id, banned)) {
        if (unknown.pending) ids.push_back(unk_);
        unknown.pending = false;
        ids.push_back(id);
      } else if (!put_bytes(text, ids)) {
        put_unknown(unknown, ids);
      }
    }
    if (unknown.pending) ids.push_back(unk_);
  }

  MergeTable::Hit merge_of(std::int32_t left, std::int32_t right, const IdSet* banned) const {
    const auto hit = merges_.find(left, right);
    return is_banned(hit.product, banned) ? MergeTable::Hit{} : hit;
  }

  void merge_short(Scratch& scratch, const IdSet* banned, std::vector<std::int32_t>& out) const {
    auto& symbols = scratch.symbols;
    const auto& ids = scratch.ids;
    std::size_t n = ids.size();
    symbols.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto hit = i + 1 < n ? merge_of(ids[i], ids[i + 1], banned) : MergeTable::Hit{};
      symbols[i] = {ids[i], hit.rank, hit.product};
    }
    for (;;) {
      std::size_t best = 0;
      std::uint32_t rank = kNoRank;
      for (std::size_t i = 0; i + 1 < n; ++i) {
        if (symbols[i].rank < rank) {
          rank = symbols[i].rank;
          best = i;
        }
      }
      if (rank == kNoRank) break;
      symbols[best].id = symbols[best].product;
      std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                symbols.begin() + static_cast<std::ptrdiff_t>(n),
                symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      --n;
      const auto update = [&](std::size_t i) {
        const auto hit = i + 1 < n ? merge_of(symbols[i].id, symbols[i + 1].id, banned) : MergeTable::Hit{};
        symbols[i].rank = hit.rank;
        symbols[i].product = hit.product;
      };
      update(best);
      if (best > 0) update(best - 1);
    }
    for (std::size_t i = 0; i < n; ++i) out.push_back(symbols[i].id);
  }

  void merge_long(Scratch& scratch, const IdSet* banned, std::vector<std::int32_t>& out) const {
    auto& links = scratch.links;
    const auto& ids = scratch.ids;
    const std::size_t n = ids.size();
    if (n >= kEnd) fail(ErrorCode::kInvalidArgument, "a word of {} characters cannot be tokenised", n);
    links.resize(n);
    // A heap entry is rank and position; it has expired when the position's rank is another one by now.
    std::vector<std::uint64_t> entries;
    entries.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto hit = i + 1 < n ? merge_of(ids[i], ids[i + 1], banned) : MergeTable::Hit{};
      links[i] = {ids[i], hit.rank, hit.product, i > 0 ? static_cast<std::uint32_t>(i - 1) : kEnd,
                  i + 1 < n ? static_cast<std::uint32_t>(i + 1) : kEnd};
      if (hit.rank != kNoRank) entries.push_back((static_cast<std::uint64_t>(hit.rank) << 32) | i);
    }
    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap(std::greater<>(),
                                                                                        std::move(entries));
    const auto update = [&](std::uint32_t at) {
      Link& link = links[at];
      const auto hit = link.next != kEnd ? merge_of(link.id, links[link.next].id, banned) : MergeTable::Hit{};
      link.rank = hit.rank;
      link.product = hit.product;
      if (hit.rank != kNoRank) heap.push((static_cast<std::uint64_t>(hit.rank) << 32) | at);
    };
    while (!heap.empty()) {
      const std::uint64_t top = heap.top();
      heap.pop();
      const auto at = static_cast<std::uint32_t>(top & 0xFFFFFFFF);
      Link& link = links[at];
      if (link.id < 0 || link.rank != static_cast<std::uint32_t>(top >> 32)) continue;
      const std::uint32_t gone = link.next;
      link.id = link.product;
      link.next = links[gone].next;
      if (link.next != kEnd) links[link.next].previous = at;
      links[gone].id = -1;
      update(at);
      if (link.previous != kEnd) update(link.previous);
    }
    for (std::uint32_t at = 0; at != kEnd; at = links[at].next) out.push_back(links[at].id);
  }

  Vocab vocab_;
  MergeTable merges_;
  BpeOptions options_;
  std::vector<std::int32_t> bytes_;
  std::int32_t unk_ = -1;
  bool decorated_ = false;
  bool can_cut_ = false;
  std::array<std::int32_t, kDirect> direct_{};
  CharacterPairs pairs_;
};

}  // namespace

std::vector<std::int32_t> byte_token_ids(const Vocab& vocab) {
  std::vector<std::int32_t> out(256, -1);
  for (std::size_t b = 0; b < 256; ++b) out[b] = vocab.find(fmt::format("<0x{:02X}>", b));
  return out;
}

std::unique_ptr<TokenModel> make_bpe(Vocab vocab, std::vector<BpeMerge> merges, BpeOptions options,
                                     std::string_view where) {
  return std::make_unique<Bpe>(std::move(vocab), merges, std::move(options), where);
}

}  // namespace triptych
