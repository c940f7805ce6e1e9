// Both passes in plain C++: the oracle of the vector versions, and what runs where there is none.
#include "media/kernels/resize_kernels.h"

namespace triptych::resize_kernels {
namespace {

constexpr uint32_t kHalf = 1U << (kPrecisionBits - 1);

// Unsigned sums wrap without undefined behaviour; the true sum of a resize fits 32 bits.
inline uint32_t product(uint8_t px, int32_t weight) noexcept {
  return uint32_t{px} * static_cast<uint32_t>(weight);
}

inline uint8_t clip8(uint32_t sum) noexcept {
  const int32_t value = static_cast<int32_t>(sum) >> kPrecisionBits;
  return static_cast<uint8_t>(value < 0 ? 0 : (value > 255 ? 255 : value));
}

}  // namespace

void horizontal_scalar(const HorizontalArgs& args) noexcept {
  const Taps& taps = args.taps;
  for (int row = 0; row < args.n_rows; ++row) {
    uint8_t* out = args.dst[row];
    for (int x = 0; x < taps.n_out; ++x, out += 3) {
      const uint8_t* px = args.src[row] + ptrdiff_t{taps.first[x]} * 3;
      const int32_t* weight = taps.weights + ptrdiff_t{x} * taps.n_taps;
      uint32_t r = kHalf, g = kHalf, b = kHalf;
      for (int k = 0; k < taps.count[x]; ++k, px += 3) {
        r += product(px[0], weight[k]);
        g += product(px[1], weight[k]);
        b += product(px[2], weight[k]);
      }
      out[0] = clip8(r);
      out[1] = clip8(g);
      out[2] = clip8(b);
    }
  }
}

void vertical_scalar(const VerticalArgs& args) noexcept {
  const Taps& taps = args.taps;
  const uint8_t* first = args.src + taps.first[args.out_row] * args.src_stride;
  const int32_t* weight = taps.weights + ptrdiff_t{args.out_row} * taps.n_taps;
  const int count = taps.count[args.out_row];
  constexpr int kBlock = 64;  // columns summed at once, so that rows are read in runs
  for (int column = 0; column < args.n_bytes; column += kBlock) {
    const int width = args.n_bytes - column < kBlock ? args.n_bytes - column : kBlock;
    uint32_t sum[kBlock];
    for (int i = 0; i < width; ++i) sum[i] = kHalf;
    for (int k = 0; k < count; ++k) {
      const uint8_t* px = first + k * args.src_stride + column;
      for (int i = 0; i < width; ++i) sum[i] += product(px[i], weight[k]);
    }
    for (int i = 0; i < width; ++i) args.dst[column + i] = clip8(sum[i]);
  }
}

}  // namespace triptych::resize_kernels
