// Random numbers that are the same on every platform, compiler and thread count: Philox4x32-10, a
// counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Any number
// of a stream can be computed alone; integer arithmetic only.
#pragma once

#include <array>
#include <cstdint>

namespace triptych {

/// One block: 128 random bits for a counter under a key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept;

/// A stream of numbers. Different (seed, stream) pairs give unrelated numbers; a request uses its seed, and
/// the index of its sequence as the stream.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) noexcept : seed_(seed), stream_(stream) {}

  std::uint32_t next_u32() noexcept;
  std::uint64_t next_u64() noexcept;
  /// In [0, 1), a multiple of 2^-53.
  double uniform() noexcept;
  /// In [0, 1), a multiple of 2^-24.
  float uniform_f32() noexcept;
  /// In [0, bound) without bias; bound >= 1.
  std::uint64_t below(std::uint64_t bound) noexcept;

  /// Numbers drawn so far (each 32 bits), and a jump to such a place.
  std::uint64_t position() const noexcept { return position_; }
  void seek(std::uint64_t position) noexcept { position_ = position; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;
  std::uint64_t block_index_ = ~std::uint64_t{0};  // which block block_ holds
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace triptych
