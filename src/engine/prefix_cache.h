// Keys and values of finished sequences, for later prompts that begin with the same tokens, positions and
// media. Blocks are shared: what is found stays here for others.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "engine/block_pool.h"
#include "models/model.h"

namespace triptych {

/// What keys and values of a sequence depend on.
struct PrefixKey {
  /// Where an item of media stands and what it is.
  struct Media {
    MediaRun run;
    Fingerprint fingerprint;  // empty: unknown, equal to nothing
    std::vector<std::int32_t> text_ids;
    ImageTokenOptions image_tokens;  // what stands behind it was computed with
  };

  std::vector<std::int32_t> tokens;     // [n]
  std::vector<std::int32_t> positions;  // [n * n_axes], token by token
  std::vector<Media> media;             // in the order of their places

  /// Tokens at the beginning of both.
  std::int64_t n_common(const PrefixKey& other) const;
};

/// The media of a prompt, in the order of their places.
std::vector<PrefixKey::Media> media_of(std::span<const MediaRun> runs, std::span<const MediaItem> items);

class PrefixCache {
 public:
  /// At most `max_entries` sequences, those used last; 0 keeps nothing. Keys and values of sequences of up to
  /// `max_shareable_tokens` do not depend on how long they are (ModelInfo). Borrows the pool.
  PrefixCache(BlockPool& pool, std::size_t max_entries, std::int64_t max_shareable_tokens)
      : pool_(pool), max_entries_(max_entries), max_shareable_tokens_(max_shareable_tokens) {}

  bool enabled() const noexcept { return max_entries_ > 0; }
  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }

  /// Blocks of a beginning of a prompt, referenced for the caller. The last may be a copy.
  struct Prefix {
    std::int64_t n_tokens = 0;
    std::vector<std::int32_t> blocks;
  };
  /// Tokens at the beginning of `key` that are here; at least one is left out, whose logits are wanted. The
  /// entry that holds most of them is then evicted last.
  std::int64_t find(const PrefixKey& key);
  /// The longest beginning of `key` that is here. Blocks that it shares in part are copied; where there is no
  /// memory for that, it ends before.
  Prefix take(const PrefixKey& key);

  /// Keeps a sequence of which `key` is in the cache, and a reference to each of its blocks. `n_prompt` of
  /// its tokens were the prompt.
  void put(PrefixKey key, std::int64_t n_prompt, std::span<const std::int32_t> blocks);
  /// Lets go of the entry used longest ago. False: there is none.
  bool evict_one();

 private:
  struct Entry {
    PrefixKey key;
    std::int64_t n_prompt = 0;
    std::vector<std::int32_t> blocks;
  };

  BlockPool& pool_;
  std::size_t max_entries_;
  std::int64_t max_shareable_tokens_;
  std::list<Entry> entries_;  // used last first
};

}  // namespace triptych
