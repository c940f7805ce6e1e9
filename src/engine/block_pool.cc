#include "engine/block_pool.h"

#include "base/error.h"

namespace triptych {

BlockPool::BlockPool(KvCache& cache) : cache_(cache) {
  const int n = cache.geometry().n_pages;
  TRIPTYCH_CHECK(cache.geometry().page_tokens == kBlockTokens, "[block_pool] pages of {} tokens",
                 cache.geometry().page_tokens);
  n_references_.resize(static_cast<std::size_t>(n), 0);
  is_cached_.resize(static_cast<std::size_t>(n), false);
  for (int i = n; i-- > 0;) free_.push_back(i);
}

std::int32_t BlockPool::allocate() {
  if (free_.empty())
    fail(ErrorCode::kOutOfMemory, "the key/value cache is full: all {} blocks of {} tokens are in use",
         n_blocks(), kBlockTokens);
  const std::int32_t block = free_.back();
  free_.pop_back();
  n_references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockPool::share(std::span<const std::int32_t> blocks) noexcept {
  for (const std::int32_t block : blocks) {
    const auto i = static_cast<std::size_t>(block);
    if (is_cached_[i] && n_references_[i] == 1) --n_idle_;
    ++n_references_[i];
  }
}

void BlockPool::release(std::span<const std::int32_t> blocks) noexcept {
  for (const std::int32_t& block : blocks) {
    const auto i = static_cast<std::size_t>(block);
    if (--n_references_[i] > 0) {
      if (is_cached_[i] && n_references_[i] == 1) ++n_idle_;
      continue;
    }
    cache_.release_pages({&block, 1});
    free_.push_back(block);  // within its capacity: every block was in it once
  }
}

void BlockPool::set_cached(std::int32_t block, bool is_cached) noexcept {
  const auto i = static_cast<std::size_t>(block);
  if (n_references_[i] == 1 && is_cached != is_cached_[i]) n_idle_ += is_cached ? 1 : -1;
  is_cached_[i] = is_cached;
}

std::int32_t BlockPool::copy(std::int32_t block) {
  const std::int32_t own = allocate();
  try {
    cache_.copy_page(block, own);
  } catch (...) {
    release({&own, 1});
    throw;
  }
  return own;
}

}  // namespace triptych
