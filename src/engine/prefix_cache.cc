#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/make_room.h"

namespace triptych {

PrefixCache::PrefixCache(BlockPool& pool, std::size_t max_bytes, std::size_t page_bytes,
                         std::int64_t max_shareable_tokens)
    : pool_(pool),
      page_bytes_(page_bytes),
      max_pages_(max_bytes / std::max<std::size_t>(page_bytes, 1)),
      max_shareable_tokens_(max_shareable_tokens) {}

bool PrefixCache::may_share(std::int64_t n_prompt, std::int64_t n_end) const noexcept {
  return enabled() && n_prompt <= max_shareable_tokens_ && n_end <= max_shareable_tokens_;
}

// The pages that hold the beginning of the sequence, and how many tokens of it.
std::vector<PrefixCache::Pages::iterator> PrefixCache::walk(PrefixChain& chain, const PrefixTokens& tokens,
                                                            std::int64_t& n_tokens) {
  std::vector<Pages::iterator> out;
  n_tokens = 0;
  if (pages_.empty() || tokens.size() < 2 || tokens.size() > max_shareable_tokens_) return out;
  const std::int64_t most = tokens.size() - 1;
  for (const Fingerprint& key : chain.keys(tokens.first(most))) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    out.push_back(found->second);
  }
  n_tokens = static_cast<std::int64_t>(out.size()) * kBlockTokens;
  const auto behind = children_.find(chain.parent(out.size()));
  if (behind == children_.end()) return out;
  const PageContents wanted = chain.page(tokens, out.size(), most - n_tokens);
  std::int64_t n_best = 0;
  Pages::iterator best;
  for (const Pages::iterator& page : behind->second) {
    const std::int64_t n = page->contents.n_common(wanted);
    if (n <= n_best) continue;
    n_best = n;
    best = page;
  }
  if (n_best > 0) out.push_back(best);
  n_tokens += n_best;
  return out;
}

PrefixCache::Match PrefixCache::find(PrefixChain& chain, const PrefixTokens& tokens) {
  Match out;
  const std::vector<Pages::iterator> path = walk(chain, tokens, out.n_tokens);
  for (std::size_t i = path.size(); i-- > 0;) pages_.splice(pages_.begin(), pages_, path[i]);
  const auto n_whole = static_cast<std::size_t>(out.n_tokens / kBlockTokens);
  for (std::size_t i = 0; i < path.size(); ++i) {
    out.blocks.push_back(path[i]->block);
    if (pool_.n_references(path[i]->block) > 1) continue;
    if (i < n_whole) {
      ++out.n_idle_whole;
    } else {
      out.idle_part = true;
    }
  }
  return out;
}

PrefixCache::Match PrefixCache::take(PrefixChain& chain, const PrefixTokens& tokens) {
  Match out = find(chain, tokens);
  pool_.share(out.blocks);
  n_queried_tokens_ += tokens.size();
  n_hit_tokens_ += out.n_tokens;
  return out;
}

std::vector<std::int32_t> PrefixCache::take_more(PrefixChain& chain, const PrefixTokens& tokens,
                                                 std::size_t n_whole) {
  std::vector<std::int32_t> out;
  if (tokens.size() < 2 || tokens.size() > max_shareable_tokens_) return out;
  const std::span<const Fingerprint> keys = chain.keys(tokens.first(tokens.size() - 1));
  for (std::size_t i = n_whole; i < keys.size(); ++i) {
    const auto found = by_key_.find(keys[i]);
    if (found == by_key_.end()) break;
    out.push_back(found->second->block);
  }
  if (out.empty()) return out;
  touch(chain, n_whole + out.size());
  pool_.share(out);
  n_hit_tokens_ += static_cast<std::int64_t>(out.size()) * kBlockTokens;
  return out;
}

// The first `n_before` pages of the sequence, whose parents stay more recent than they are.
void PrefixCache::touch(PrefixChain& chain, std::size_t n_before) {
  for (std::size_t i = n_before; i-- > 0;) {
    const auto found = by_key_.find(chain.parent(i + 1));
    if (found != by_key_.end()) pages_.splice(pages_.begin(), pages_, found->second);
  }
}

void PrefixCache::insert(const Fingerprint& key, const Fingerprint& parent, PageContents contents,
                         std::int32_t block) {
  std::vector<Pages::iterator>& siblings = children_[parent];
  bool is_listed = false;
  try {
    make_room(siblings, 1);
    pages_.push_front({key, parent, std::move(contents), block});
    is_listed = true;
    by_key_.emplace(key, pages_.begin());
  } catch (...) {
    if (is_listed) pages_.pop_front();
    if (siblings.empty()) children_.erase(parent);
    throw;
  }
  siblings.push_back(pages_.begin());
  pool_.share({&block, 1});
  pool_.set_cached(block, true);
}

// It has no pages behind it.
void PrefixCache::remove(Pages::iterator page) noexcept {
  by_key_.erase(page->key);
  const auto siblings = children_.find(page->parent);
  std::erase(siblings->second, page);
  if (siblings->second.empty()) children_.erase(siblings);
  pool_.set_cached(page->block, false);
  pool_.release({&page->block, 1});
  pages_.erase(page);
}

// Needs no memory: a sequence that fails for want of it forgets its pages.
void PrefixCache::remove_with_descendants(Pages::iterator page) noexcept {
  for (;;) {
    Pages::iterator last = page;
    for (auto behind = children_.find(last->key); behind != children_.end();
         behind = children_.find(last->key))
      last = behind->second.back();
    const bool is_page = last == page;
    remove(last);
    if (is_page) return;
  }
}

// What ended within these contents is in them.
void PrefixCache::drop_beginnings_of(const PageContents& contents, const Fingerprint& parent) {
  const auto siblings = children_.find(parent);
  if (siblings == children_.end()) return;
  std::vector<Pages::iterator> gone;
  for (const Pages::iterator& page : siblings->second)
    if (page->contents.n_tokens() < contents.n_tokens() &&
        page->contents.n_common(contents) == page->contents.n_tokens())
      gone.push_back(page);
  for (const Pages::iterator& page : gone) remove_with_descendants(page);
}

PrefixCache::Published PrefixCache::publish(PrefixChain& chain, const PrefixTokens& tokens,
                                            std::int64_t n_prompt, std::size_t index, std::int32_t block) {
  const std::int64_t n_end = static_cast<std::int64_t>(index + 1) * kBlockTokens;
  if (!may_share(n_prompt, n_end)) return {block, false};
  const std::span<const Fingerprint> keys = chain.keys(tokens);
  if (index >= keys.size() || (index > 0 && !by_key_.contains(keys[index - 1]))) return {block, false};
  if (const auto found = by_key_.find(keys[index]); found != by_key_.end()) {
    const std::int32_t here = found->second->block;
    touch(chain, index + 1);
    if (here == block) return {block, false};
    pool_.share({&here, 1});
    pool_.release({&block, 1});
    return {here, false};
  }
  PageContents contents = chain.page(tokens, index);
  drop_beginnings_of(contents, chain.parent(index));
  insert(keys[index], chain.parent(index), std::move(contents), block);
  touch(chain, index);
  trim();
  return {block, true};
}

void PrefixCache::publish_rest(PrefixChain& chain, const PrefixTokens& tokens, std::int64_t n_prompt,
                               std::int32_t block) {
  const auto index = static_cast<std::size_t>(tokens.size() / kBlockTokens);
  if (tokens.size() % kBlockTokens == 0 || !may_share(n_prompt, tokens.size())) return;
  const std::span<const Fingerprint> keys = chain.keys(tokens);
  if (keys.size() < index || (index > 0 && !by_key_.contains(keys[index - 1]))) return;
  const Fingerprint parent = chain.parent(index);
  PageContents contents = chain.page(tokens, index);
  const auto is_unknown = [](const PageContents::Media& one) { return one.key.empty(); };
  if (std::any_of(contents.media.begin(), contents.media.end(), is_unknown)) return;
  if (const auto siblings = children_.find(parent); siblings != children_.end())
    for (const Pages::iterator& page : siblings->second)
      if (page->contents.n_common(contents) == contents.n_tokens()) {
        pages_.splice(pages_.begin(), pages_, page);
        touch(chain, index);
        return;
      }
  drop_beginnings_of(contents, parent);
  const Fingerprint key = contents.key(parent);
  insert(key, parent, std::move(contents), block);
  touch(chain, index);
  trim();
}

void PrefixCache::forget(const Fingerprint& key, std::int32_t block) noexcept {
  const auto found = by_key_.find(key);
  if (found != by_key_.end() && found->second->block == block) remove_with_descendants(found->second);
}

bool PrefixCache::evict_one() {
  for (auto page = pages_.end(); page != pages_.begin();) {
    --page;
    if (pool_.n_references(page->block) > 1) continue;
    const std::size_t n_before = pages_.size();
    remove_with_descendants(page);  // it has none as a rule: who uses a page uses those before it
    n_evicted_pages_ += static_cast<std::int64_t>(n_before - pages_.size());
    return true;
  }
  return false;
}

void PrefixCache::trim() {
  while (pages_.size() > max_pages_) {
    if (evict_one()) continue;
    remove(std::prev(pages_.end()));
    ++n_evicted_pages_;
  }
}

void PrefixCache::clear() {
  while (!pages_.empty()) remove(std::prev(pages_.end()));
}

}  // namespace triptych
