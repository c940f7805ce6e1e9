#include "base/digest.h"

#include <sodium.h>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kDigest_bytes = 32;

}  // namespace

struct Digest::State {
  crypto_generichash_state hash;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  static const bool ready = sodium_init() >= 0;  // chooses the fastest implementation
  TRIPTYCH_CHECK(ready, "libsodium cannot be used");
  crypto_generichash_init(&state_->hash, nullptr, 0, kDigest_bytes);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  TRIPTYCH_CHECK(state_ != nullptr, "the digest has ended");
  crypto_generichash_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

std::string Digest::finish_hex() {
  TRIPTYCH_CHECK(state_ != nullptr, "the digest has ended");
  unsigned char raw[kDigest_bytes];
  crypto_generichash_final(&state_->hash, raw, sizeof raw);
  state_.reset();
  char hex[2 * kDigest_bytes + 1];
  sodium_bin2hex(hex, sizeof hex, raw, sizeof raw);
  return hex;
}

std::string digest_hex(std::span<const std::byte> bytes) {
  Digest out;
  out.add(bytes);
  return out.finish_hex();
}

}  // namespace triptych
