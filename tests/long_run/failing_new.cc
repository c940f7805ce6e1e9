#include "long_run/failing_new.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local std::int64_t t_n_before = -1;

// Not inlined: GCC would take the malloc inside for a mismatch with delete.
[[gnu::noinline]] void* allocated(std::size_t bytes, std::size_t alignment) {
  if (t_n_before >= 0 && t_n_before-- == 0) throw std::bad_alloc();
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory =
      alignment <= alignof(std::max_align_t) ? std::malloc(whole) : std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void release(void* memory) noexcept { std::free(memory); }

}  // namespace

namespace triptych::test {
void fail_allocation_after(std::int64_t n_before) noexcept { t_n_before = n_before; }
bool take_back_failure() noexcept {
  const bool waits = t_n_before >= 0;
  t_n_before = -1;
  return waits;
}
}  // namespace triptych::test

void* operator new(std::size_t bytes) { return allocated(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocated(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
// A sanitizer's own would not go with the operator delete below.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept try {
  return allocated(bytes, 1);
} catch (...) {
  return nullptr;
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept try {
  return allocated(bytes, 1);
} catch (...) {
  return nullptr;
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
