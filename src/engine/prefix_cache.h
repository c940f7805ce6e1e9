// Pages of keys and values that later sequences may begin with, found by the chain of their keys
// (prefix_key.h). Whole pages are here as soon as they are full, those of sequences that still run too; the
// last, partly filled page of a sequence once it has ended. A page is shared by reference and written by
// nobody: who has to write into a page that others hold too copies it first.
//
// Least recently used pages go first, and none before the pages behind it. Pages that sequences use take no
// memory of their own here; going from here makes no room then, so idle ones go before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_pool.h"
#include "engine/prefix_key.h"

namespace triptych {

class PrefixCache {
 public:
  /// At most `max_bytes` of pages of `page_bytes` each, idle or not; 0 keeps nothing. Keys and values of
  /// sequences of up to `max_shareable_tokens` do not depend on how long they are (ModelInfo). Borrows the
  /// pool.
  PrefixCache(BlockPool& pool, std::size_t max_bytes, std::size_t page_bytes,
              std::int64_t max_shareable_tokens);

  bool enabled() const noexcept { return max_pages_ > 0; }
  bool empty() const noexcept { return pages_.empty(); }
  std::size_t n_pages() const noexcept { return pages_.size(); }
  std::size_t size_bytes() const noexcept { return pages_.size() * page_bytes_; }

  /// A beginning of a sequence.
  struct Match {
    std::int64_t n_tokens = 0;
    std::vector<std::int32_t> blocks;  // that hold them; of the last one perhaps only some rows
    std::int64_t n_idle_whole = 0;     // of the whole pages: those that no sequence uses
    bool idle_part = false;            // no sequence uses the last one, of which only some rows are wanted
  };
  /// The longest beginning of the sequence that is here; at least one token is left out, whose logits are
  /// wanted. Its pages are then evicted last. Takes no references.
  Match find(PrefixChain& chain, const PrefixTokens& tokens);
  /// The same with a reference to each block for the caller.
  Match take(PrefixChain& chain, const PrefixTokens& tokens);
  /// For a sequence that has started and has the first n_whole pages: those behind them that are here by now.
  std::vector<std::int32_t> take_more(PrefixChain& chain, const PrefixTokens& tokens, std::size_t n_whole);

  struct Published {
    std::int32_t block = -1;  // that holds the page from now on
    bool is_new = false;      // it was not here before
  };
  /// Page `index` of a sequence with a prompt of `n_prompt` tokens is full and lies in `block`. When it is
  /// here already, the caller's reference moves to the block in which it is.
  Published publish(PrefixChain& chain, const PrefixTokens& tokens, std::int64_t n_prompt, std::size_t index,
                    std::int32_t block);
  /// The same for the rows behind the last whole page of a sequence that ended; nothing when there are none.
  void publish_rest(PrefixChain& chain, const PrefixTokens& tokens, std::int64_t n_prompt,
                    std::int32_t block);
  /// What was published from `block` under `key` may be wrong: it goes, with all that stands behind it.
  void forget(const Fingerprint& key, std::int32_t block) noexcept;

  /// Gives back the idle page that was not used for longest. False: there is none.
  bool evict_one();
  /// Lets go of all pages.
  void clear();

  /// Tokens looked for by take(), and found, so far.
  std::int64_t n_queried_tokens() const noexcept { return n_queried_tokens_; }
  std::int64_t n_hit_tokens() const noexcept { return n_hit_tokens_; }
  std::int64_t n_evicted_pages() const noexcept { return n_evicted_pages_; }

 private:
  struct Page {
    Fingerprint key, parent;
    PageContents contents;
    std::int32_t block = -1;
  };
  // Used last first. A page is never behind one of the pages behind it in a sequence, so the last one of the
  // list has none.
  using Pages = std::list<Page>;

  bool may_share(std::int64_t n_prompt, std::int64_t n_end) const noexcept;
  std::vector<Pages::iterator> walk(PrefixChain& chain, const PrefixTokens& tokens, std::int64_t& n_tokens);
  void touch(PrefixChain& chain, std::size_t n_before);
  void insert(const Fingerprint& key, const Fingerprint& parent, PageContents contents, std::int32_t block);
  void remove(Pages::iterator page) noexcept;
  void remove_with_descendants(Pages::iterator page) noexcept;
  void drop_beginnings_of(const PageContents& contents, const Fingerprint& parent);
  void trim();

  BlockPool& pool_;
  std::size_t page_bytes_;
  std::size_t max_pages_;
  std::int64_t max_shareable_tokens_;
  Pages pages_;
  std::unordered_map<Fingerprint, Pages::iterator, FingerprintHash> by_key_;
  std::unordered_map<Fingerprint, std::vector<Pages::iterator>, FingerprintHash> children_;  // by parent
  std::int64_t n_queried_tokens_ = 0;
  std::int64_t n_hit_tokens_ = 0;
  std::int64_t n_evicted_pages_ = 0;
};

}  // namespace triptych
