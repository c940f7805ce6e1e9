#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "text/trie.h"
#include "text/word_cache.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr std::size_t kMaxCachedBytes = 128;
constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();

// The best way to get to a byte position.
struct Node {
  double score = 0.0;
  std::uint32_t start = kUnreached;
  std::int32_t id = -1;
};

struct Scratch final : EncodeScratch {
  WordCache words;
  WordCache plain_words;
  std::vector<Node> nodes;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> path;  // pieces as [begin, end)
  std::vector<bool> path_unknown;
};

class Unigram final : public TokenModel {
 public:
  Unigram(Vocab vocab, std::vector<double> scores, UnigramOptions options)
      : vocab_(std::move(vocab)),
        scores_(std::move(scores)),
        options_(options),
        bytes_(byte_token_ids(vocab_)) {
    std::vector<Trie::Key> keys;
    keys.reserve(vocab_.size());
    double least = std::numeric_limits<double>::infinity();
    for (std::int32_t id = 0; id < vocab_.id_limit(); ++id) {
      least = std::min(least, scores_[static_cast<std::size_t>(id)]);
      const std::string_view content = vocab_.content(id);
      // Of two tokens with one content the look-up's answer counts.
      if (!content.empty()) keys.emplace_back(content, vocab_.find(content));
    }
    unknown_score_ = least - kUnknownPenalty;
    trie_ = Trie(std::move(keys));
  }

  const Vocab& vocab() const override { return vocab_; }
  std::unique_ptr<EncodeScratch> make_scratch() const override { return std::make_unique<Scratch>(); }
  void add_byte_ids(IdSet& set) const override {
    if (!options_.byte_fallback) return;
    for (const std::int32_t id : bytes_) set.insert(id);
  }

  void encode(std::string_view piece, const PieceContext& context,
              std::vector<std::int32_t>& out) const override {
    Scratch local;
    Scratch& scratch = context.scratch != nullptr ? static_cast<Scratch&>(*context.scratch) : local;
    if (piece.size() > kMaxCachedBytes) {
      segment(piece, context.banned, scratch, out);
      return;
    }
    WordCache& cache = context.banned == nullptr ? scratch.words : scratch.plain_words;
    if (cache.find(piece, out)) return;
    const std::size_t before = out.size();
    segment(piece, context.banned, scratch, out);
    cache.insert(piece, std::span<const std::int32_t>(out).subspan(before));
  }

 private:
  static bool is_banned(std::int32_t id, const IdSet* banned) {
    return banned != nullptr && banned->contains(id);
  }

  void segment(std::string_view text, const IdSet* banned, Scratch& scratch,
               std::vector<std::int32_t>& out) const {
    if (text.size() >= kUnreached)
      fail(ErrorCode::kInvalidArgument, "a text of more than 4 GiB cannot be tokenised");
    viterbi(text, banned, scratch.nodes);
    auto& path = scratch.path;
    auto& unknown = scratch.path_unknown;
    path.clear();
    unknown.clear();
    for (auto end = static_cast<std::uint32_t>(text.size()); end > 0;) {
      const Node& node = scratch.nodes[end];
      const bool is_unknown = node.id == options_.unk_id;
      if (is_unknown && !unknown.empty() && unknown.back())
        path.back().first = node.start;  // neighbours fuse
      else
        path.emplace_back(node.start, end), unknown.push_back(is_unknown);
      end = node.start;
    }
    for (std::size_t k = path.size(); k-- > 0;) {
      const std::string_view part = text.substr(path[k].first, path[k].second - path[k].first);
      put(part, banned, out);
    }
  }

  void viterbi(std::string_view text, const IdSet* banned, std::vector<Node>& nodes) const {
    nodes.assign(text.size() + 1, Node{});
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t length = utf8::length_of(text[start]);
      const double so_far = nodes[start].score;
      bool single = false;
      const auto offer = [&](std::size_t end, double score, std::int32_t id) {
        Node& node = nodes[end];
        if (node.start != kUnreached && !(score > node.score)) return;
        node = {score, static_cast<std::uint32_t>(start), id};
      };
      trie_.prefixes(text.substr(start), [&](std::size_t n, std::int32_t id) {
        if (is_banned(id, banned)) return;
        offer(start + n, scores_[static_cast<std::size_t>(id)] + so_far, id);
        single = single || n == length;
      });
      if (!single) {
        if (options_.unk_id < 0)
          fail(ErrorCode::kInvalidArgument,
               "the vocabulary has no token for a part of the text and no unknown token");
        offer(start + length, unknown_score_ + so_far, options_.unk_id);
      }
      start += length;
    }
  }

  void put(std::string_view part, const IdSet* banned, std::vector<std::int32_t>& out) const {
    const std::int32_t id = vocab_.find(part);
    if (id >= 0 && !is_banned(id, banned)) {
      out.push_back(id);
      return;
    }
    const bool fallback = options_.byte_fallback && std::all_of(part.begin(), part.end(), [&](char c) {
                            return bytes_[static_cast<unsigned char>(c)] >= 0;
                          });
    if (!fallback) {
      out.push_back(options_.unk_id);
      return;
    }
    for (const char c : part) out.push_back(bytes_[static_cast<unsigned char>(c)]);
  }

  Vocab vocab_;
  std::vector<double> scores_;
  UnigramOptions options_;
  std::vector<std::int32_t> bytes_;
  double unknown_score_ = 0.0;
  Trie trie_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(Vocab vocab, std::vector<double> scores, UnigramOptions options,
                                         std::string_view where) {
  TRIPTYCH_CHECK(scores.size() == static_cast<std::size_t>(vocab.id_limit()));
  if (vocab.size() == 0) fail(ErrorCode::kInvalidFile, "{}: the vocabulary is empty", where);
  if (options.unk_id >= vocab.id_limit())
    fail(ErrorCode::kInvalidFile, "{}: unk_id {} is outside the vocabulary of {}", where, options.unk_id,
         vocab.id_limit());
  for (const double score : scores)
    if (!std::isfinite(score)) fail(ErrorCode::kInvalidFile, "{}: a score that is not finite", where);
  return std::make_unique<Unigram>(std::move(vocab), std::move(scores), options);
}

}  // namespace triptych
