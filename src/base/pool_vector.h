// A std::vector whose elements live in the process's memory pool: for large contents such as pixels. What
// grows without a value (resize(n), the constructor of a size) is not initialised: memory that nothing has
// written takes no page.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
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
  template <typename U>
  void construct(U* at) noexcept {
    static_assert(std::is_trivially_default_constructible_v<U>);
    ::new (static_cast<void*>(at)) U;
  }
  template <typename U, typename... Args>
  void construct(U* at, Args&&... args) {
    std::construct_at(at, std::forward<Args>(args)...);
  }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) noexcept { return true; }
};

template <typename T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace triptych
