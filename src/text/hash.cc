#include "text/hash.h"

#include <random>

namespace triptych {

std::uint64_t hash_seed() noexcept {
  static const std::uint64_t seed = []() noexcept -> std::uint64_t {
    try {
      std::random_device source;
      return (static_cast<std::uint64_t>(source()) << 32) | source();
    } catch (...) {
      return 0x2545F4914F6CDD1DULL;  // no source of randomness: tables still work
    }
  }();
  return seed;
}

}  // namespace triptych
