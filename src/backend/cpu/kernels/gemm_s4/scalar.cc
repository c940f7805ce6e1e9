// The oracle: the definitions of gemm_s4.h.
#include <cstring>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "base/half.h"

namespace triptych::kernels {
namespace {

float half_to_float(const uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

// Lowest first: rows are short, columns are lanes.
void rows(const S4RowsArgs& t) {
  constexpr int kWidth = kS4PanelWidth;
  const S4Layout& layout = t.layout;
  for (int r = 0; r < t.n_rows; ++r) {
    float y[kWidth] = {};
    const uint8_t* at = t.panel;
    const int8_t* q = t.q + r * t.q_stride;
    for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
      int32_t sums[kWidth] = {};
      for (ptrdiff_t b = 0; b < layout.blocks(g); ++b, at += kWidth * 4, q += 8)
        for (int j = 0; j < 4; ++j) {
          const int low = q[j];
          const int high = q[4 + j];
          for (int c = 0; c < kWidth; ++c) {
            const int byte = at[c * 4 + j];
            sums[c] += (byte & 15) * low + (byte >> 4) * high;
          }
        }
      const int32_t total = t.group_sums[r * layout.n_groups() + g];
      const uint8_t* zeros = layout.asymmetric ? at + 2 * kWidth : nullptr;
      for (int c = 0; c < kWidth; ++c) {
        const float sum = static_cast<float>(sums[c] - (zeros != nullptr ? zeros[c] : 8) * total);
        const float product = sum * half_to_float(at + 2 * c);
        y[c] = y[c] + product;
      }
      at += layout.tail_bytes();
    }
    for (int c = 0; c < kWidth; ++c) t.y[r * t.y_stride + c] = y[c] * t.row_scale[r];
  }
}

int round_to_even(float x) { return static_cast<int>(__builtin_nearbyintf(x)); }

void requantize(const S4RequantizeArgs& t) {
  constexpr int kWidth = kS4PanelWidth;
  const S4Layout& layout = t.layout;
  const uint8_t* at = t.panel;
  const ptrdiff_t quads = layout.padded_k() / 4;
  ptrdiff_t quad = 0;
  if (t.in_tiles) std::memset(t.out + (quads - 1) / 16 * 4 * kTile_bytes, 0, 4 * kTile_bytes);
  const auto column_at = [&](ptrdiff_t i, int c) {
    return t.out +
           (t.in_tiles ? s4_tile_at(quads, i) + c / 16 * kTile_bytes + c % 16 * 4 : (i * kWidth + c) * 4);
  };
  for (ptrdiff_t g = 0; g < layout.n_groups(); ++g) {
    const uint8_t* tail = at + layout.blocks(g) * kWidth * 4;
    float ratio[kWidth];
    int zero[kWidth];
    for (int c = 0; c < kWidth; ++c) {
      ratio[c] = t.column_scale[c] > 0 ? half_to_float(tail + 2 * c) / t.column_scale[c] : 0.0F;
      zero[c] = layout.asymmetric ? tail[2 * kWidth + c] : 8;
    }
    for (ptrdiff_t b = 0; b < layout.blocks(g); ++b, at += kWidth * 4, quad += 2)
      for (int c = 0; c < kWidth; ++c)
        for (int j = 0; j < 4; ++j) {
          const int byte = at[c * 4 + j];
          column_at(quad, c)[j] =
              static_cast<uint8_t>(round_to_even(static_cast<float>((byte & 15) - zero[c]) * ratio[c]) + 128);
          column_at(quad + 1, c)[j] =
              static_cast<uint8_t>(round_to_even(static_cast<float>((byte >> 4) - zero[c]) * ratio[c]) + 128);
        }
    at += layout.tail_bytes();
  }
}

}  // namespace

extern const GemmS4Kernels kGemmS4Scalar = {"scalar", rows, requantize, kS4MaxRows, true};

}  // namespace triptych::kernels
