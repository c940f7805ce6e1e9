#include "base/fingerprint.h"

#include <sodium.h>

#include <cstring>

#include "base/digest.h"

namespace triptych {

static_assert(sizeof(Fingerprint) == 32);

Fingerprint keyed_fingerprint(std::span<const std::byte> bytes, std::span<const std::byte> key) {
  Digest digest(key);
  digest.add(bytes);
  return digest.finish();
}

Fingerprint fingerprint(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.finish();
}

std::string to_hex(const Fingerprint& fingerprint) {
  unsigned char raw[sizeof fingerprint];
  std::memcpy(raw, &fingerprint, sizeof raw);
  char hex[2 * sizeof raw + 1];
  sodium_bin2hex(hex, sizeof hex, raw, sizeof raw);
  return hex;
}

std::optional<Fingerprint> fingerprint_from_hex(std::string_view hex) {
  unsigned char raw[sizeof(Fingerprint)];
  if (hex.size() != 2 * sizeof raw) return std::nullopt;
  for (const char c : hex)
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return std::nullopt;
  std::size_t n = 0;
  if (sodium_hex2bin(raw, sizeof raw, hex.data(), hex.size(), nullptr, &n, nullptr) != 0 || n != sizeof raw)
    return std::nullopt;
  Fingerprint out;
  std::memcpy(&out, raw, sizeof raw);
  return out;
}

}  // namespace triptych
