// A std::vector whose elements live in the process's memory pool: for large contents such as pixels.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

#include "base/memory_pool.h"

namespace triptych {

template <typename T>
struct PoolAllocator {
  using value_type = T;
  static_assert(alignof(T) <= MemoryPool::kAlignment_bytes);

  PoolAllocator() noexcept = default;
  template <typename U>
  PoolAllocator(const PoolAllocator<U>&) noexcept {}  // NOLINT: allocators convert

  T* allocate(std::size_t n) {
    if (n > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return reinterpret_cast<T*>(MemoryPool::process().allocate(n * sizeof(T)));
  }
  void deallocate(T* data, std::size_t) noexcept {
    MemoryPool::process().release(reinterpret_cast<std::byte*>(data));
  }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) noexcept { return true; }
};

template <typename T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace triptych
