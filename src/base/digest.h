// Checksums of what this program writes, and names of what it has seen: BLAKE2b with 256 bits (RFC 7693;
// `b2sum -l 256` gives the same), by libsodium. Detects damage; it does not say who wrote a file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/fingerprint.h"

namespace triptych {

/// Of bytes that come in pieces.
class Digest {
 public:
  /// Without a key, or with one of 16 to 64 bytes.
  explicit Digest(std::span<const std::byte> key = {});
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// The bytes of a number or of a struct without gaps, as they lie in memory.
  template <typename T>
  void add_value(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    add(std::as_bytes(std::span(&value, 1)));
  }
  /// A text with its length, so that texts one after another cannot be cut in two ways.
  void add_text(std::string_view text);
  /// Ends the digest.
  Fingerprint finish();
  /// The same as 64 digits in lower case.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of one piece.
std::string digest_hex(std::span<const std::byte> bytes);

}  // namespace triptych
