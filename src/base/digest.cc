#include "base/digest.h"

#include <sodium.h>

#include <cstring>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kDigest_bytes = 32;

}  // namespace

struct Digest::State {
  crypto_generichash_state hash;
};

Digest::Digest(std::span<const std::byte> key) : state_(std::make_unique<State>()) {
  static const bool ready = sodium_init() >= 0;  // chooses the fastest implementation
  TRIPTYCH_CHECK(ready, "libsodium cannot be used");
  TRIPTYCH_CHECK(key.empty() || (key.size() >= crypto_generichash_KEYBYTES_MIN &&
                                 key.size() <= crypto_generichash_KEYBYTES_MAX),
                 "a key of {} bytes", key.size());
  crypto_generichash_init(&state_->hash, reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                          kDigest_bytes);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  TRIPTYCH_CHECK(state_ != nullptr, "the digest has ended");
  crypto_generichash_update(&state_->hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

void Digest::add_text(std::string_view text) {
  add_value(static_cast<std::uint64_t>(text.size()));
  add(std::as_bytes(std::span(text)));
}

Fingerprint Digest::finish() {
  TRIPTYCH_CHECK(state_ != nullptr, "the digest has ended");
  unsigned char raw[kDigest_bytes];
  crypto_generichash_final(&state_->hash, raw, sizeof raw);
  state_.reset();
  Fingerprint out;
  static_assert(sizeof out == sizeof raw);
  std::memcpy(&out, raw, sizeof raw);
  return out;
}

std::string Digest::finish_hex() { return to_hex(finish()); }

std::string digest_hex(std::span<const std::byte> bytes) {
  Digest out;
  out.add(bytes);
  return out.finish_hex();
}

}  // namespace triptych
