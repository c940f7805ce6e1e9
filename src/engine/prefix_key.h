// What the keys and values of a page depend on, as a chain of 256-bit hashes: a page's key is the hash of the
// key of the page before it and of all that its own rows were computed from. Two sequences whose pages have
// the same key hold the same keys and values there, whatever follows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/kv_dtype.h"
#include "base/fingerprint.h"
#include "engine/block_pool.h"
#include "models/model.h"

namespace triptych {

/// A picture or video of a prompt, and where its rows stand.
struct PrefixMedia {
  MediaRun run;
  Fingerprint key;  // of pixels, plan and text_ids; empty: unknown, equal to nothing
};
/// The media of a prompt, in the order of their places.
std::vector<PrefixMedia> media_of(std::span<const MediaRun> runs, std::span<const MediaItem> items);

/// What the first page's key begins with: sequences of other models, other types of cache or other tenants
/// (`salt`) have nothing in common.
Fingerprint prefix_root(const Fingerprint& model, KvDType kv_dtype, std::string_view salt);

/// What the rows of one page, or of the beginning of one, are computed from beside the pages before it.
struct PageContents {
  /// Rows [first_row, first_row + n_rows) of the page are rows of a medium.
  struct Media {
    std::int64_t first_row = 0;
    std::int64_t n_rows = 0;
    std::int64_t first_media_row = 0;
    Fingerprint key;
  };

  std::vector<std::int32_t> tokens;     // [n], n <= kBlockTokens
  std::vector<std::int32_t> positions;  // [n * n_axes], token by token
  std::vector<Media> media;             // in order

  std::int64_t n_tokens() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  /// Tokens at the beginning of both.
  std::int64_t n_common(const PageContents& other) const;
  /// Key of this page behind the page `parent`, or behind the root.
  Fingerprint key(const Fingerprint& parent) const;
};

/// Tokens of a sequence, borrowed: positions token by token.
struct PrefixTokens {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> positions;

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  PrefixTokens first(std::int64_t n) const;
};

/// The keys of one sequence's pages. Sequences only grow: what was hashed once is not hashed again.
class PrefixChain {
 public:
  PrefixChain() = default;
  PrefixChain(const Fingerprint& root, std::vector<PrefixMedia> media)
      : root_(root), media_(std::move(media)) {}

  const Fingerprint& root() const noexcept { return root_; }
  /// Keys of the whole pages of `tokens`, in order; none from the first row of unknown media on.
  std::span<const Fingerprint> keys(const PrefixTokens& tokens);
  /// Key of what stands before page `index`.
  const Fingerprint& parent(std::size_t index) const { return index == 0 ? root_ : keys_.at(index - 1); }
  /// Contents of up to `n` tokens from the beginning of page `index` on.
  PageContents page(const PrefixTokens& tokens, std::size_t index, std::int64_t n = kBlockTokens) const;

 private:
  Fingerprint root_;
  std::vector<PrefixMedia> media_;
  std::vector<Fingerprint> keys_;
};

}  // namespace triptych
