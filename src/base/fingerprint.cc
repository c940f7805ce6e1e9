#include "base/fingerprint.h"

#include <bit>
#include <cstring>
#include <random>

namespace triptych {
namespace {

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() noexcept {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void absorb(std::uint64_t word) noexcept {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  std::uint64_t finish() noexcept {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// Little endian, whatever the machine.
std::uint64_t load_word(const std::byte* from, std::size_t n) noexcept {
  std::uint64_t out = 0;
  if (n == 8 && std::endian::native == std::endian::little) {
    std::memcpy(&out, from, 8);
    return out;
  }
  for (std::size_t i = 0; i < n; ++i) out |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
  return out;
}

}  // namespace

Fingerprint sip_hash_128(std::span<const std::byte> bytes, SipKey key) noexcept {
  State s{key.k0 ^ 0x736f6d6570736575U, key.k1 ^ 0x646f72616e646f6dU ^ 0xeeU, key.k0 ^ 0x6c7967656e657261U,
          key.k1 ^ 0x7465646279746573U};
  const std::size_t n_words = bytes.size() / 8;
  for (std::size_t i = 0; i < n_words; ++i) s.absorb(load_word(bytes.data() + 8 * i, 8));
  s.absorb(load_word(bytes.data() + 8 * n_words, bytes.size() % 8) |
           (static_cast<std::uint64_t>(bytes.size()) << 56));
  Fingerprint out;
  s.v2 ^= 0xeeU;
  out.low = s.finish();
  s.v1 ^= 0xddU;
  out.high = s.finish();
  return out;
}

Fingerprint fingerprint(std::span<const std::byte> bytes) {
  static const SipKey key = [] {
    std::random_device device;
    const auto word = [&] { return (static_cast<std::uint64_t>(device()) << 32) | device(); };
    return SipKey{word(), word()};
  }();
  return sip_hash_128(bytes, key);
}

}  // namespace triptych
