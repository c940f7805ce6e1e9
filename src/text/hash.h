// One hash for the tables of this layer. It is seeded at random once per process: the keys come from files
// and requests, and a chosen set of keys must not make a table slow.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace triptych {

/// The seed of this process.
std::uint64_t hash_seed() noexcept;

/// Mixes 64 bits (xor-multiply-shift of the product's halves).
inline std::uint64_t hash_u64(std::uint64_t x, std::uint64_t seed) noexcept {
  x ^= seed;
  x *= 0x9E3779B97F4A7C15ULL;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32);
}

inline std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) noexcept {
  std::uint64_t h = seed ^ (bytes.size() * 0x9E3779B97F4A7C15ULL);
  const char* p = bytes.data();
  std::size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    h = hash_u64(h ^ word, seed);
  }
  if (n > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, n);
    h = hash_u64(h ^ word, seed);
  }
  return h;
}

}  // namespace triptych
