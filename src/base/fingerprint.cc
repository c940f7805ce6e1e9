#include "base/fingerprint.h"

#include <sodium.h>

#include <array>
#include <cstring>

#include "base/error.h"

namespace triptych {

Fingerprint keyed_fingerprint(std::span<const std::byte> bytes, std::span<const std::byte> key) {
  static const bool ready = sodium_init() >= 0;  // chooses the fastest implementation
  TRIPTYCH_CHECK(ready, "libsodium cannot be used");
  TRIPTYCH_CHECK(
      key.size() >= crypto_generichash_KEYBYTES_MIN && key.size() <= crypto_generichash_KEYBYTES_MAX,
      "a key of {} bytes", key.size());
  unsigned char hash[16];
  crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size());
  Fingerprint out;
  std::memcpy(&out.low, hash, 8);
  std::memcpy(&out.high, hash + 8, 8);
  return out;
}

Fingerprint fingerprint(std::span<const std::byte> bytes) {
  static const auto key = [] {
    std::array<std::byte, 32> drawn;
    randombytes_buf(drawn.data(), drawn.size());
    return drawn;
  }();
  return keyed_fingerprint(bytes, key);
}

}  // namespace triptych
