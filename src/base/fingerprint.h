// Recognising content that was seen before: a keyed 128-bit BLAKE2b (libsodium's crypto_generichash). The key
// is drawn once a process: nobody outside can make two contents that look equal, or tell what a fingerprint
// stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace triptych {

struct Fingerprint {
  std::uint64_t low = 0, high = 0;
  bool empty() const noexcept { return low == 0 && high == 0; }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

/// Of the bytes, with `key` (16 to 64 bytes).
Fingerprint keyed_fingerprint(std::span<const std::byte> bytes, std::span<const std::byte> key);

/// With the process's key.
Fingerprint fingerprint(std::span<const std::byte> bytes);

}  // namespace triptych
