// Pages of an engine's sequences: where they come from, who may write to them, and when others may use them.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace triptych {

// Blocks whose memory the pictures of started requests take; choices of one request share theirs.
std::int64_t Engine::n_held_by_pictures() const {
  std::int64_t out = 0;
  std::vector<const ChoiceGroup*> counted;
  for (const auto* list : {&running_, &waiting_})
    for (const auto& s : *list) {
      if (!s->ticket.started || s->finished() || s->n_picture_blocks == 0) continue;
      if (s->group) {
        if (std::find(counted.begin(), counted.end(), s->group.get()) != counted.end()) continue;
        counted.push_back(s->group.get());
      }
      out += s->n_picture_blocks;
    }
  return out;
}

// Those that nobody holds, and those that only the prefix cache does, without those whose memory pictures
// take.
std::int64_t Engine::n_available_blocks() const { return n_available_blocks(n_held_by_pictures()); }

// The same where pictures take the memory of so many blocks: first of those that the limit allows beyond the
// cache.
std::int64_t Engine::n_available_blocks(std::int64_t n_of_pictures) const {
  const std::int64_t all = pool_->n_free() + pool_->n_idle();
  if (!memory_.is_limited()) return all;
  const std::int64_t n_spare = memory_.n_blocks() - pool_->n_blocks();
  return std::max<std::int64_t>(all - std::max<std::int64_t>(n_of_pictures - n_spare, 0), 0);
}

std::int32_t Engine::allocate_block() {
  if (pool_->n_free() == 0) prefix_cache_->evict_one();
  return pool_->allocate();
}

void Engine::reserve_blocks(Sequence& s, std::int64_t n_tokens) {
  while (static_cast<std::int64_t>(s.blocks.size()) < blocks_for(n_tokens)) {
    s.blocks.reserve(s.blocks.size() + 1);  // so that a block that was taken is noted
    s.blocks.push_back(allocate_block());
  }
}

// Its next token goes into a page that others hold, too.
bool Engine::must_copy_page(const Sequence& s) const {
  const auto index = static_cast<std::size_t>(s.n_computed / kBlockTokens);
  return s.n_computed % kBlockTokens != 0 && index < s.blocks.size() &&
         pool_->n_references(s.blocks[index]) > 1;
}

// Copy on write. False when there is no memory for it: then the rows of that page are to be computed again.
bool Engine::own_last_page(Sequence& s) {
  if (!must_copy_page(s)) return true;
  const auto index = static_cast<std::size_t>(s.n_computed / kBlockTokens);
  const std::int32_t shared = s.blocks[index];
  try {
    if (pool_->n_free() == 0) prefix_cache_->evict_one();
    s.blocks[index] = pool_->copy(shared);
    pool_->release({&shared, 1});
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
  }
  pool_->release(std::span(s.blocks).subspan(index));
  s.blocks.resize(index);
  s.n_computed = static_cast<std::int64_t>(index) * kBlockTokens;
  s.result.n_reused_tokens = std::min(s.result.n_reused_tokens, s.n_computed);
  return false;
}

PrefixChain Engine::prefix_chain(const Sequence& s, const PreparedRequest& request) const {
  return {prefix_root(prefix_model_, runner_->kv_cache().geometry().dtype, request.cache_salt),
          media_of(s.runs, request.media)};
}

// A sequence whose prompt waits for its turn begins with the pages that another one has computed meanwhile.
void Engine::adopt_pages(Sequence& s) {
  if (!prefix_cache_->enabled() || s.n_computed >= s.n_prompt || s.n_computed % kBlockTokens != 0) return;
  const auto n_whole = static_cast<std::size_t>(s.n_computed / kBlockTokens);
  if (s.blocks.size() != n_whole) return;
  const std::vector<std::int32_t> more = prefix_cache_->take_more(s.prefix, s.prefix_tokens(), n_whole);
  if (more.empty()) return;
  try {
    s.blocks.insert(s.blocks.end(), more.begin(), more.end());
  } catch (...) {
    pool_->release(more);
    throw;
  }
  s.n_computed += static_cast<std::int64_t>(more.size()) * kBlockTokens;
  s.n_published = s.blocks.size();
  if (s.n_tokens() == s.n_prompt)
    s.result.n_reused_tokens += static_cast<std::int64_t>(more.size()) * kBlockTokens;
}

// Of its tokens, those whose keys and values others may use.
std::int64_t Engine::n_publishable(const Sequence& s) const {
  return s.keep ? std::min(s.keep->n_publishable(s), s.n_computed) : s.n_computed;
}

// Some of its tokens have gone or come back, but for the first n_same: its pages from there on are others.
void Engine::rename_pages(Sequence& s, std::int64_t n_same) {
  if (!prefix_cache_->enabled()) return;
  s.prefix = PrefixChain(s.prefix.root(), media_of(s.runs, s.media));
  s.n_published = std::min(s.n_published, static_cast<std::size_t>(n_same / kBlockTokens));
}

// Pages that have become full. Where another sequence was first with one, that one's is used.
void Engine::publish_pages(Sequence& s) {
  if (!prefix_cache_->enabled()) return;
  const auto n_full = static_cast<std::size_t>(n_publishable(s) / kBlockTokens);
  for (; s.n_published < n_full; ++s.n_published) {
    const std::size_t i = s.n_published;
    s.own_pages.reserve(s.own_pages.size() + 1);
    const PrefixCache::Published page =
        prefix_cache_->publish(s.prefix, s.prefix_tokens(), s.n_prompt, i, s.blocks[i]);
    s.blocks[i] = page.block;
    if (page.is_new) s.own_pages.emplace_back(s.prefix.parent(i + 1), page.block);
  }
}

// Of a sequence that ended: the rows behind its last full page.
void Engine::publish_rest(Sequence& s) {
  const std::int64_t n = n_publishable(s);
  if (!prefix_cache_->enabled() || n % kBlockTokens == 0) return;
  prefix_cache_->publish_rest(s.prefix, s.prefix_tokens().first(n), s.n_prompt,
                              s.blocks[static_cast<std::size_t>(n / kBlockTokens)]);
}

// Its keys and values may be what is wrong.
void Engine::forget_pages(Sequence& s) {
  for (const auto& [key, block] : s.own_pages) prefix_cache_->forget(key, block);
  s.own_pages.clear();
}

KvCacheStats Engine::kv_cache_stats() const {
  KvCacheStats out{.n_blocks = pool_->n_blocks(),
                   .n_free_blocks = pool_->n_free(),
                   .n_idle_blocks = pool_->n_idle(),
                   .n_cached_blocks = static_cast<std::int64_t>(prefix_cache_->n_pages()),
                   .block_tokens = kBlockTokens,
                   .n_queried_tokens = prefix_cache_->n_queried_tokens(),
                   .n_hit_tokens = prefix_cache_->n_hit_tokens(),
                   .n_evicted_blocks = prefix_cache_->n_evicted_pages()};
  std::vector<std::int64_t> n_rows(static_cast<std::size_t>(out.n_blocks), -1);
  const auto count = [&](const Sequence& s) {
    for (std::size_t i = 0; i < s.blocks.size(); ++i) {
      const std::int64_t filled = std::clamp<std::int64_t>(
          s.n_computed - static_cast<std::int64_t>(i) * kBlockTokens, 0, kBlockTokens);
      std::int64_t& rows = n_rows[static_cast<std::size_t>(s.blocks[i])];
      rows = std::max(rows, filled);
    }
  };
  for (const auto& s : running_) count(*s);
  if (probe_) count(*probe_);
  for (std::size_t i = 0; i < n_rows.size(); ++i) {
    if (n_rows[i] < 0) continue;
    ++out.n_used_blocks;
    out.n_used_tokens += n_rows[i];
    if (pool_->n_users(static_cast<std::int32_t>(i)) > 1) ++out.n_shared_blocks;
  }
  return out;
}

}  // namespace triptych
