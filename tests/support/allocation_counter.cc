// Replaces operator new and delete by counting ones. The sanitizers have their own and must keep them, to see
// mismatches and leaks; there a hook of theirs counts instead.
#include "support/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRIPTYCH_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TRIPTYCH_SANITIZED 1
#endif
#endif

namespace {
std::atomic<long> g_n_allocations{0};
}

namespace triptych {
long n_allocations() noexcept { return g_n_allocations.load(); }

void allocate_once() { ::operator delete(::operator new(16)); }  // calls, not expressions: these must be made
}  // namespace triptych

#if defined(TRIPTYCH_SANITIZED)

// GCC 12 ships the function but not the header that declares it (sanitizer/allocator_interface.h).
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                                         void (*on_free)(const volatile void*));

namespace {
void count_one(const volatile void* /*memory*/, std::size_t /*bytes*/) { g_n_allocations.fetch_add(1); }
void ignore(const volatile void* /*memory*/) {}
[[maybe_unused]] const int g_installed = __sanitizer_install_malloc_and_free_hooks(count_one, ignore);
}  // namespace

#else

namespace {
// Not inlined: GCC would take the malloc inside for a mismatch with delete.
[[gnu::noinline]] void* counted(std::size_t bytes, std::size_t alignment) {
  g_n_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;  // as aligned_alloc wants it
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes == 0 ? 1 : bytes)
                     : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t /*alignment*/) noexcept { release(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  release(memory);
}

#endif
