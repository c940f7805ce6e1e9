// Checksums of what this program writes: BLAKE2b with 256 bits (RFC 7693; `b2sum -l 256` gives the same), by
// libsodium. Detects damage; it does not say who wrote a file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace triptych {

/// Of bytes that come in pieces.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  /// 64 digits in lower case; ends the digest.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of one piece.
std::string digest_hex(std::span<const std::byte> bytes);

}  // namespace triptych
