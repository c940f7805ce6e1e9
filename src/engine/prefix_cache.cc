#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace triptych {
namespace {

bool same(const PrefixKey::Media& a, const PrefixKey::Media& b) {
  return a.run.first_prompt_row == b.run.first_prompt_row && a.run.n_rows == b.run.n_rows &&
         a.run.first_media_row == b.run.first_media_row && !a.fingerprint.empty() &&
         a.fingerprint == b.fingerprint && a.text_ids == b.text_ids && a.image_tokens == b.image_tokens;
}

std::size_t n_equal(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

std::vector<PrefixKey::Media> media_of(std::span<const MediaRun> runs, std::span<const MediaItem> items) {
  std::vector<PrefixKey::Media> out;
  for (const MediaRun& run : runs) {
    const MediaItem& item = items[static_cast<std::size_t>(run.media_index)];
    out.push_back({run, item.fingerprint, item.text_ids, item.image_tokens});
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.run.first_prompt_row < b.run.first_prompt_row; });
  return out;
}

std::int64_t PrefixKey::n_common(const PrefixKey& other) const {
  if (tokens.empty() || other.tokens.empty()) return 0;
  const std::size_t n_axes = positions.size() / tokens.size();
  auto common = static_cast<std::int64_t>(
      std::min(n_equal(tokens, other.tokens), n_equal(positions, other.positions) / n_axes));
  for (std::size_t i = 0; i < std::max(media.size(), other.media.size()); ++i) {
    const bool both = i < media.size() && i < other.media.size();
    if (both && same(media[i], other.media[i])) continue;
    if (i < media.size()) common = std::min(common, media[i].run.first_prompt_row);
    if (i < other.media.size()) common = std::min(common, other.media[i].run.first_prompt_row);
    break;  // later ones stand behind
  }
  return common;
}

std::int64_t PrefixCache::find(const PrefixKey& key) {
  const auto n_tokens = static_cast<std::int64_t>(key.tokens.size());
  if (n_tokens > max_shareable_tokens_) return 0;
  std::int64_t n_best = 0;
  auto best = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->n_prompt > max_shareable_tokens_) continue;
    const std::int64_t n = std::min(it->key.n_common(key), n_tokens - 1);
    if (n <= n_best) continue;
    n_best = n;
    best = it;
  }
  if (n_best > 0) entries_.splice(entries_.begin(), entries_, best);
  return n_best;
}

PrefixCache::Prefix PrefixCache::take(const PrefixKey& key) {
  const std::int64_t n_tokens = find(key);
  Prefix out;
  if (n_tokens == 0) return out;
  const std::span<const std::int32_t> blocks = entries_.front().blocks;
  const auto n_whole = static_cast<std::size_t>(n_tokens / kBlockTokens);
  out.blocks.reserve(n_whole + 1);
  out.blocks.assign(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(n_whole));
  out.n_tokens = n_tokens;
  if (n_tokens % kBlockTokens != 0) try {
      out.blocks.push_back(pool_.copy(blocks[n_whole]));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kOutOfMemory) throw;
      out.n_tokens -= n_tokens % kBlockTokens;  // computed anew
    }
  pool_.share(blocks.first(n_whole));
  return out;
}

void PrefixCache::put(PrefixKey key, std::int64_t n_prompt, std::span<const std::int32_t> blocks) {
  const auto n_tokens = static_cast<std::int64_t>(key.tokens.size());
  if (!enabled() || n_tokens == 0) return;
  const auto n_blocks = static_cast<std::size_t>(blocks_for(n_tokens));
  TRIPTYCH_CHECK(blocks.size() >= n_blocks, "[prefix_cache] {} blocks for {} tokens", blocks.size(),
                 n_tokens);
  entries_.push_front(
      {std::move(key), n_prompt, {blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(n_blocks)}});
  pool_.share(entries_.front().blocks);
  while (entries_.size() > max_entries_) evict_one();
}

bool PrefixCache::evict_one() {
  if (entries_.empty()) return false;
  pool_.release(entries_.back().blocks);
  entries_.pop_back();
  return true;
}

}  // namespace triptych
