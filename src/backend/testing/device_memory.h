// Memory that stands for a device's: pages that this processor may touch while an operation runs and at no
// other time. Whoever does ends the program with a message, so that a test sees reads and writes behind the
// backend's back that would go unnoticed where host and device share one memory.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "tensor/tensor.h"

namespace triptych::test {

/// A range of addresses. Blocks are handed out one after another and no address twice.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t capacity_bytes = std::size_t{8} << 30) : capacity_bytes_(capacity_bytes) {
    void* base =
        ::mmap(nullptr, capacity_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
      fail(ErrorCode::kOutOfMemory, "no room for {} bytes of device memory", capacity_bytes_);
    base_ = static_cast<std::byte*>(base);
    watch(base_, capacity_bytes_);
  }
  ~DeviceMemory() {
    watch(nullptr, 0);
    ::munmap(base_, capacity_bytes_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  bool contains(const void* address) const noexcept { return lies_in(address, base_, capacity_bytes_); }

  /// Of `self`, which the buffer keeps alive.
  static Buffer allocate(const std::shared_ptr<DeviceMemory>& self, std::size_t size_bytes) {
    const std::size_t size = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    const std::scoped_lock lock(self->mutex_);
    if (size > self->capacity_bytes_ - self->used_bytes_)
      fail(ErrorCode::kOutOfMemory, "no {} bytes of device memory left", size_bytes);
    std::byte* data = self->base_ + self->used_bytes_;
    self->used_bytes_ += size;
    if (self->n_open_ > 0) self->protect(PROT_READ | PROT_WRITE);
    // Gives the pages back, not the addresses.
    const std::shared_ptr<const void> owner(data, [self, size](const std::byte* p) {
      ::madvise(const_cast<std::byte*>(p), size, MADV_DONTNEED);
    });
    return Buffer::wrap(owner, data, size_bytes, MemoryKind::kDevice);
  }

  /// While one lives, operations may touch the memory; nested ones count.
  class Open {
   public:
    explicit Open(DeviceMemory& memory) : memory_(memory) { memory_.add_open(1); }
    ~Open() { memory_.add_open(-1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    DeviceMemory& memory_;
  };
  /// The reverse, for what runs on the host inside a plan.
  class Closed {
   public:
    explicit Closed(DeviceMemory& memory) : memory_(memory) { memory_.add_open(-1); }
    ~Closed() { memory_.add_open(1); }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  static constexpr std::size_t kPageBytes = 4096;

  static bool lies_in(const void* address, const std::byte* base, std::size_t size_bytes) noexcept {
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    const auto b = reinterpret_cast<std::uintptr_t>(base);
    return a >= b && a - b < size_bytes;
  }

  void add_open(int n) {
    const std::scoped_lock lock(mutex_);
    const bool was_open = n_open_ > 0;
    n_open_ += n;
    if (was_open != (n_open_ > 0)) protect(n_open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  void protect(int protection) {
    if (used_bytes_ > 0 && ::mprotect(base_, used_bytes_, protection) != 0)
      fail(ErrorCode::kInternal, "mprotect of {} bytes of device memory failed", used_bytes_);
  }

  // The handler of SIGSEGV tells such a fault from others. One range at a time is watched.
  static void watch(std::byte* base, std::size_t size_bytes) {
    TRIPTYCH_CHECK(base == nullptr || watched_base_ == nullptr, "one DeviceMemory at a time");
    watched_bytes_ = size_bytes;
    watched_base_ = base;
    if (base == nullptr) {
      ::sigaction(SIGSEGV, &previous_, nullptr);
      return;
    }
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &previous_);
  }
  static void on_fault(int, siginfo_t* info, void*) {
    constexpr std::string_view kMessage = "host code touched device memory outside of an operation\n";
    if (lies_in(info->si_addr, watched_base_, watched_bytes_))
      static_cast<void>(!::write(STDERR_FILENO, kMessage.data(), kMessage.size()));
    ::sigaction(SIGSEGV, &previous_, nullptr);  // the fault comes again, and ends the program
  }
  static inline std::atomic<std::byte*> watched_base_ = nullptr;
  static inline std::atomic<std::size_t> watched_bytes_ = 0;
  static inline struct sigaction previous_ = {};

  std::size_t capacity_bytes_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::size_t used_bytes_ = 0;
  int n_open_ = 0;
};

}  // namespace triptych::test
