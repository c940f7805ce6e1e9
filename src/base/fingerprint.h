// Recognising content that was seen before: a keyed 128-bit hash (SipHash-2-4 with the longer output;
// Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012). The key is drawn once a process, so that
// nobody outside can make two contents that look equal.
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

struct SipKey {
  std::uint64_t k0 = 0, k1 = 0;
};

/// SipHash-2-4-128 of the bytes.
Fingerprint sip_hash_128(std::span<const std::byte> bytes, SipKey key) noexcept;

/// With the process's key.
Fingerprint fingerprint(std::span<const std::byte> bytes);

}  // namespace triptych
