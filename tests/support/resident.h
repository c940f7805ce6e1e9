// Which pages of a range this process has mapped: what releasing memory changes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

namespace triptych::test {

/// Bytes of [data, data + size_bytes) in this process's page table, by whole pages (/proc/self/pagemap, bit
/// 63). Nothing where the system does not say, or speaks of an emulator's memory.
inline std::optional<std::size_t> resident_bytes(const void* data, std::size_t size_bytes) {
  if (std::getenv("TRIPTYCH_EMULATED") != nullptr) return std::nullopt;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(data) / page;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(data) + size_bytes + page - 1) / page;
  std::vector<std::uint64_t> entries(last - first);
  const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  const std::size_t wanted = entries.size() * sizeof entries[0];
  const ssize_t n = ::pread(file, entries.data(), wanted, static_cast<off_t>(first * sizeof entries[0]));
  ::close(file);
  if (n != static_cast<ssize_t>(wanted)) return std::nullopt;
  std::size_t out = 0;
  for (const std::uint64_t entry : entries) out += (entry >> 63) * page;
  return out;
}

}  // namespace triptych::test
