// Recognising content that was seen before, in this process or by another: BLAKE2b with 256 bits (RFC 7693;
// libsodium's crypto_generichash). Nobody can make two contents that look equal. Where somebody else chooses
// the content that is to be recognised, a key keeps what he calls by a name apart from what others call so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

/// 256 bits, in words of the hash's bytes as they lie in memory.
struct Fingerprint {
  std::uint64_t low = 0, high = 0, upper_low = 0, upper_high = 0;
  bool empty() const noexcept { return *this == Fingerprint{}; }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

/// Of the bytes, with `key` (16 to 64 bytes).
Fingerprint keyed_fingerprint(std::span<const std::byte> bytes, std::span<const std::byte> key);

/// Without a key: the same in every process.
Fingerprint fingerprint(std::span<const std::byte> bytes);

/// 64 digits in lower case, of the hash's bytes in order.
std::string to_hex(const Fingerprint& fingerprint);
/// The reverse; nothing for any other text.
std::optional<Fingerprint> fingerprint_from_hex(std::string_view hex);

/// For tables in memory: 64 of the bits.
struct FingerprintHash {
  std::size_t operator()(const Fingerprint& f) const noexcept { return static_cast<std::size_t>(f.low); }
};

}  // namespace triptych
