#include "backend/cpu/quantized_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/linear_quantized.h"

namespace triptych::cpu {
namespace {

using Elements = Outliers::Element;
constexpr int kRowOutliers = Outliers::kRowOutliers;

// Of a row without its outliers.
struct RowStatistics {
  double square_sum;
  float largest;
};
// In blocks, whose sums stay floats, so that compilers make vectors of it.
RowStatistics row_statistics(const float* x, std::int64_t k, const Elements* without) {
  constexpr int kLanes = 16;
  constexpr std::int64_t kBlock = 4 * kLanes;
  RowStatistics out{0, 0};
  for (std::int64_t begin = 0; begin < k; begin += kBlock) {
    float block[kBlock] = {};
    std::copy(x + begin, x + std::min(k, begin + kBlock), block);
    for (int e = 0; e < kRowOutliers && without[e].channel >= 0; ++e)
      if (without[e].channel >= begin && without[e].channel < begin + kBlock)
        block[without[e].channel - begin] = 0;
    float squares[kLanes] = {};
    float most[kLanes] = {};
    for (std::int64_t i = 0; i < kBlock; i += kLanes)
      for (int j = 0; j < kLanes; ++j) {
        squares[j] += block[i + j] * block[i + j];
        const float size = std::abs(block[i + j]);
        most[j] = size > most[j] ? size : most[j];
      }
    for (int j = 0; j < kLanes; ++j) {
      out.square_sum += static_cast<double>(squares[j]);
      out.largest = std::max(out.largest, most[j]);
    }
  }
  return out;
}

// The largest elements, as long as the rest is far below.
void find_outliers(const float* x, std::int64_t k, Elements* out) {
  std::fill(out, out + kRowOutliers, Elements{-1, -1, 0});
  for (int e = 0; e < kRowOutliers; ++e) {
    const RowStatistics statistics = row_statistics(x, k, out);
    const double rest = std::max(0.0, statistics.square_sum - static_cast<double>(statistics.largest) *
                                                                  static_cast<double>(statistics.largest));
    const double mean = rest / static_cast<double>(std::max<std::int64_t>(1, k - e - 1));
    if (!(statistics.largest > Outliers::kLimit * std::sqrt(mean)) || k < 64) return;
    std::int64_t at = 0;
    const auto is_taken = [&](std::int64_t i) {
      return std::any_of(out, out + e, [i](const Elements& element) { return element.channel == i; });
    };
    while (std::abs(x[at]) != statistics.largest || is_taken(at)) ++at;
    out[e] = {static_cast<std::int32_t>(at), -1, x[at]};
  }
}

// The first channels of all rows, in the order of rows, get cached columns. Number of columns.
std::int32_t choose_cached_columns(Elements* elements, std::int64_t n_rows, std::int32_t* channels) {
  std::int32_t n = 0;
  for (std::int64_t i = 0; i < n_rows; ++i) {
    Elements* row = elements + i * kRowOutliers;
    for (int e = 0; e < kRowOutliers && row[e].channel >= 0; ++e) {
      std::int32_t at = 0;
      while (at < n && channels[at] != row[e].channel) ++at;
      if (at == n && n < Outliers::kCachedColumns) channels[n++] = row[e].channel;
      row[e].cached_column = at < n ? at : -1;
    }
  }
  return n;
}

}  // namespace

void add_outliers(const QuantizedRows& rows, std::int64_t row, std::int64_t first, std::int64_t n,
                  float* products) {
  const Outliers& outliers = rows.outliers;
  if (outliers.elements == nullptr) return;
  constexpr std::int64_t kBlock = kernels::kS8PanelWidth;
  float loaded[kBlock];
  const Elements* elements = outliers.elements + row * kRowOutliers;
  for (int e = 0; e < kRowOutliers && elements[e].channel >= 0; ++e) {
    const auto [channel, cached, x] = elements[e];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, n - begin);
      const float* w = loaded;
      if (cached >= 0) {
        w = outliers.columns + cached * outliers.column_stride + first + begin;
      } else {
        outliers.weight->load_column(channel, first + begin, size, loaded);
      }
      for (std::int64_t j = 0; j < size; ++j) products[begin + j] += x * w[j];
    }
  }
}

namespace {

// A row with static quantization parameters.
void quantize_static(const Runtime& runtime, const ActivationQuant& quant, std::int64_t k, const float* x,
                     std::int8_t* q, float& scale, std::int32_t& sum) {
  scale = quant.step;
  runtime.pointwise.epilogue({Activation::kNone,
                              k,
                              x,
                              nullptr,
                              nullptr,
                              nullptr,
                              false,
                              {q, 1.0F / quant.step, quant.offset, &scale}});
  runtime.gemm_s8.sums({k, q, k, &sum});
}

// Row i of what is multiplied: of x, or its norm, which is written to `normed` [k].
const float* input_row(const Runtime& runtime, const LinearArgs& args, std::int64_t i, std::int64_t k,
                       float* normed) {
  const float* x = args.x + i * args.x_stride;
  if (args.norm == LinearInput::Norm::kNone) return x;
  if (args.norm == LinearInput::Norm::kLayerNorm) {
    runtime.norm.layer_norm(k, x, args.norm_weight, args.norm_bias, args.norm_eps, normed);
  } else {
    runtime.norm.rms_norm(k, x, args.norm_weight, args.norm_eps, normed);
  }
  return normed;
}

}  // namespace

namespace {

// Where rows of int8 stand: one behind the other, or in tile order (tile_quads > 0).
struct RowPlaces {
  std::int64_t n_rows;
  std::int64_t k;
  std::int64_t tile_quads;
  std::int64_t stride() const {
    return tile_quads > 0 ? kernels::s8_tile_steps(tile_quads) * kernels::kTileRow_bytes : ceil_div(k, 8) * 8;
  }
  std::int64_t n_stored() const {
    return tile_quads > 0 ? ceil_div(n_rows, kernels::kTileHeight) * kernels::kTileHeight : n_rows;
  }
  std::int64_t n_floats() const { return n_stored() * stride() / 4; }
  std::int64_t at(std::int64_t i) const {
    if (tile_quads == 0) return i * stride();
    return i / kernels::kTileHeight * kernels::kTileHeight * stride() +
           i % kernels::kTileHeight * kernels::kTileRow_bytes;
  }
};

// A row of int8 [k] to its place in tile order, of whose quads those beyond k are zeros; null: all are.
void store_tile_row(const std::int8_t* q, std::int64_t k, std::int64_t quads, std::int8_t* to) {
  constexpr std::int64_t kStep = kernels::kTileRow_bytes;
  for (std::int64_t begin = 0; begin < 4 * quads; begin += kStep, to += kernels::kTile_bytes) {
    const std::int64_t gap = 4 * quads - begin < kStep ? kernels::s8_tile_gap(quads) : 0;
    const std::int64_t n = q == nullptr ? 0 : std::clamp<std::int64_t>(k - begin, 0, kStep - gap);
    std::fill(to, to + gap, std::int8_t{0});
    if (n > 0) std::copy(q + begin, q + begin + n, to + gap);
    std::fill(to + gap + n, to + kStep, std::int8_t{0});
  }
}

}  // namespace

QuantizedRows int8_rows_of(Runtime& runtime, const LinearArgs& args, std::int64_t k,
                           std::int64_t tile_quads) {
  const std::int64_t m = args.n_rows;
  const RowPlaces places{m, k, tile_quads};
  const std::int64_t head = ceil_div(2 * m, 16) * 16;  // rows begin at a cache line
  float* memory =
      runtime.shared_scratch(static_cast<std::size_t>(head + (tile_quads > 0 ? places.n_floats() : 0)));
  auto* tiles = reinterpret_cast<std::int8_t*>(memory + head);
  QuantizedRows out{
      args.x_int8, args.x_int8_stride, memory, reinterpret_cast<std::int32_t*>(memory + m), nullptr, {}};
  if (tile_quads > 0) {
    out.q = tiles;
    out.stride = places.stride();
  }
  std::copy(args.x_scales, args.x_scales + m, out.scales);
  runtime.parallel(tile_quads > 0 ? places.n_stored() : m, k, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int8_t* row = i < m ? args.x_int8 + i * args.x_int8_stride : nullptr;
      if (row != nullptr) runtime.gemm_s8.sums({k, row, k, out.sums + i});
      if (tile_quads > 0) store_tile_row(row, k, tile_quads, tiles + places.at(i));
    }
  });
  return out;
}

namespace {

// Sums of row i by groups, if they are wanted (group > 0).
void sum_groups(const Runtime& runtime, const QuantizedRows& rows, std::int64_t k, std::int64_t group,
                std::int64_t i) {
  if (group > 0)
    runtime.gemm_s8.sums({k, rows.q + i * rows.stride, group, rows.group_sums + i * ceil_div(k, group)});
}

const kernels::GemmS8Kernels& quantizer(const Runtime& runtime, std::int64_t tile_quads) {
  return tile_quads > 0 ? *runtime.gemm_s8_tiles : runtime.gemm_s8;
}

// Quantizes the rows that have outliers again, without them, and reads the columns that these meet.
void take_outliers(Runtime& runtime, const LinearArgs& args, const QuantizedLinear& weight,
                   std::int64_t group, const RowPlaces& places, Elements* elements, std::int8_t* int8,
                   QuantizedRows& out) {
  const std::int64_t m = args.n_rows;
  const std::int64_t k = weight.n_in();
  const std::int64_t stride = out.stride;
  const bool norms = args.norm != LinearInput::Norm::kNone;
  std::int32_t channels[Outliers::kCachedColumns];
  const std::int32_t n_columns = choose_cached_columns(elements, m, channels);
  const std::int64_t n_padded = ceil_div(weight.n_out(), kernels::kS8PanelWidth) * kernels::kS8PanelWidth;
  // Those columns, and a row of x for each thread.
  float* columns =
      runtime.second_scratch(static_cast<std::size_t>(n_columns * n_padded + runtime.n_threads() * stride));
  float* buffers = columns + n_columns * n_padded;
  runtime.parallel(n_columns, 64 * n_padded, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t c = begin; c < end; ++c)
      weight.load_column(channels[c], 0, weight.n_out(), columns + c * n_padded);
  });
  runtime.parallel(m, 6 * k, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Elements* row = elements + i * kRowOutliers;
      if (row[0].channel < 0) continue;
      const float* x = input_row(runtime, args, i, k, norms ? runtime.thread_scratch(thread) : nullptr);
      float* rest = buffers + thread * stride;
      std::copy(x, x + k, rest);
      for (int e = 0; e < kRowOutliers && row[e].channel >= 0; ++e) rest[row[e].channel] = 0;
      quantizer(runtime, places.tile_quads)
          .quantize({k, rest, int8 + places.at(i), out.scales + i, out.sums + i, nullptr, places.tile_quads});
      sum_groups(runtime, out, k, group, i);
    }
  });
  out.outliers = {elements, columns, n_padded, &weight};
}

}  // namespace

QuantizedRows quantize_rows(Runtime& runtime, const LinearArgs& args, const QuantizedLinear& weight,
                            std::int64_t group, std::int64_t tile_quads) {
  const std::int64_t m = args.n_rows;
  const std::int64_t k = weight.n_in();
  const std::int64_t n_groups = group > 0 ? ceil_div(k, group) : 0;
  const RowPlaces places{m, k, tile_quads};
  const std::int64_t stride = places.stride();
  static_assert(sizeof(Elements) % sizeof(float) == 0);
  const std::int64_t element_floats =
      m * kRowOutliers * static_cast<std::int64_t>(sizeof(Elements) / sizeof(float));
  const std::int64_t head = ceil_div(m * (2 + n_groups) + element_floats, 16) * 16;
  float* memory = runtime.shared_scratch(static_cast<std::size_t>(head + places.n_floats()));
  float* more = memory + 2 * m;
  auto* elements = reinterpret_cast<Elements*>(more + m * n_groups);
  auto* int8 = reinterpret_cast<std::int8_t*>(memory + head);
  QuantizedRows out{int8,
                    stride,
                    memory,
                    reinterpret_cast<std::int32_t*>(memory + m),
                    reinterpret_cast<std::int32_t*>(more),
                    {}};
  const bool norms = args.norm != LinearInput::Norm::kNone;
  const bool copies = tile_quads > 0 && args.x_quant.step > 0;  // of a row as it is rounded
  const std::int64_t copy_floats = copies ? stride / 4 : 0;
  if (norms || copies)
    runtime.reserve_thread_scratch(static_cast<std::size_t>(copy_floats + (norms ? k : 0)));
  std::atomic<bool> any = false;
  runtime.parallel(places.n_stored(), 6 * k, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* normed = norms ? runtime.thread_scratch(thread) + copy_floats : nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      std::int8_t* q = int8 + places.at(i);
      if (i >= m) {
        store_tile_row(nullptr, k, tile_quads, q);
        continue;
      }
      const float* x = input_row(runtime, args, i, k, normed);
      if (tile_quads == 0) std::fill(q + k, q + stride, std::int8_t{0});
      elements[i * kRowOutliers].channel = -1;
      if (args.x_quant.step > 0) {
        auto* row = copies ? reinterpret_cast<std::int8_t*>(runtime.thread_scratch(thread)) : q;
        quantize_static(runtime, args.x_quant, k, x, row, out.scales[i], out.sums[i]);
        if (copies) store_tile_row(row, k, tile_quads, q);
        sum_groups(runtime, out, k, group, i);
        continue;
      }
      std::int32_t square_sum = 0;
      quantizer(runtime, tile_quads)
          .quantize({k, x, q, out.scales + i, out.sums + i, &square_sum, tile_quads});
      sum_groups(runtime, out, k, group, i);
      // Statistics of the int8 row first: few rows need those of the floats.
      // The largest is 127; rounding changes the mean square of the rest by a 12th, where it matters by 1 in
      // 700.
      constexpr double kLargest = 127.0 * 127.0;
      const double rest = (square_sum - kLargest) / static_cast<double>(std::max<std::int64_t>(1, k - 1));
      if (rest * Outliers::kLimit * Outliers::kLimit > 1.05 * kLargest || !std::isfinite(out.scales[i]))
        continue;
      find_outliers(x, k, elements + i * kRowOutliers);
      if (elements[i * kRowOutliers].channel >= 0) any = true;
    }
  });
  if (any) take_outliers(runtime, args, weight, group, places, elements, int8, out);
  return out;
}

}  // namespace triptych::cpu
