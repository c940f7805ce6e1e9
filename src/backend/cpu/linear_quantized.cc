#include "backend/cpu/linear_quantized.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>

#include "base/error.h"

namespace triptych::cpu {
namespace {

// A few pieces a thread even out unequal speeds.
std::int64_t wanted_pieces(const Runtime& runtime) {
  return runtime.n_threads() == 1 ? 1 : std::int64_t{3} * runtime.n_threads();
}

}  // namespace

void load_row(const Runtime& runtime, const LinearSpec& spec, std::int64_t index, float* out) {
  for (const WeightEntry& part : spec.parts) {
    if (index < part.view.dim(0)) {
      const TensorView row = part.view.row(index);
      runtime.rows.widen(element_type_of(part.view.dtype(), part.name), row.numel(), row.cdata(), out);
      return;
    }
    index -= part.view.dim(0);
  }
}

void release_loaded_rows(const LinearSpec& spec, std::int64_t begin, std::int64_t end) noexcept {
  for (const WeightEntry& part : spec.parts) {
    const std::int64_t n = part.view.dim(0);
    release_rows(part, std::clamp<std::int64_t>(begin, 0, n), std::clamp<std::int64_t>(end, 0, n));
    begin -= n;
    end -= n;
  }
}

void make_panels(Runtime& runtime, const LinearSpec& spec, std::int64_t n_out, std::int64_t n_in,
                 FunctionRef<void(std::int64_t panel)> make) {
  constexpr std::int64_t kWidth = kernels::kS8PanelWidth;
  std::exception_ptr problem;
  std::mutex mutex;
  runtime.parallel(ceil_div(n_out, kWidth), kWidth * n_in * 8,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     try {
                       for (std::int64_t i = begin; i < end; ++i) {
                         make(i);
                         release_loaded_rows(spec, i * kWidth, std::min(n_out, (i + 1) * kWidth));
                       }
                     } catch (...) {
                       const std::scoped_lock lock(mutex);
                       problem = std::current_exception();
                     }
                   });
  if (problem) std::rethrow_exception(problem);
}

std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in) {
  if (spec.parts.empty()) fail(ErrorCode::kInvalidFile, "{}: a linear without a matrix", spec.name);
  std::int64_t n_out = 0;
  for (const WeightEntry& part : spec.parts) {
    const TensorView& view = part.view;
    if (view.rank() != 2 || view.data() == nullptr || view.dim(0) < 1 || view.dim(1) < 1)
      fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got {}", part.name,
           to_string(view.shape()));
    element_type_of(view.dtype(), part.name);
    if (n_out > 0 && view.dim(1) != n_in)
      fail(ErrorCode::kInvalidFile, "{}: expected [N, {}] beside the other matrices, got {}", part.name, n_in,
           to_string(view.shape()));
    n_in = view.dim(1);
    n_out += view.dim(0);
  }
  if (n_in > kernels::kS8MaxK)
    fail(ErrorCode::kUnsupported, "{}: {} inputs; 8-bit products take up to {}", spec.name, n_in,
         kernels::kS8MaxK);
  return n_out;
}

namespace {

using Elements = Outliers::Element;
constexpr int kRowOutliers = Outliers::kRowOutliers;

struct RowSums {
  double square;
  float largest;
};
// In blocks, whose sums stay floats, so that compilers make vectors of it.
RowSums look_at(const float* x, std::int64_t k, const Elements* without) {
  constexpr int kLanes = 16;
  constexpr std::int64_t kBlock = 4 * kLanes;
  RowSums out{0, 0};
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
      out.square += static_cast<double>(squares[j]);
      out.largest = std::max(out.largest, most[j]);
    }
  }
  return out;
}

// The largest elements, as long as the rest is far below.
void find_outliers(const float* x, std::int64_t k, Elements* out) {
  std::fill(out, out + kRowOutliers, Elements{-1, -1, 0});
  for (int e = 0; e < kRowOutliers; ++e) {
    const RowSums sums = look_at(x, k, out);
    const double rest =
        std::max(0.0, sums.square - static_cast<double>(sums.largest) * static_cast<double>(sums.largest));
    const double mean = rest / static_cast<double>(std::max<std::int64_t>(1, k - e - 1));
    if (!(sums.largest > Outliers::kLimit * std::sqrt(mean)) || k < 64) return;
    std::int64_t at = 0;
    const auto is_taken = [&](std::int64_t i) {
      return std::any_of(out, out + e, [i](const Elements& element) { return element.channel == i; });
    };
    while (std::abs(x[at]) != sums.largest || is_taken(at)) ++at;
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
void quantize_static(const Runtime& runtime, const ActivationQuant& grid, std::int64_t k, const float* x,
                     std::int8_t* q, float& scale, std::int32_t& sum) {
  scale = grid.step;
  runtime.pointwise.epilogue({kernels::Function::kNone,
                              k,
                              x,
                              nullptr,
                              nullptr,
                              nullptr,
                              false,
                              {q, 1.0F / grid.step, grid.offset, &scale}});
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

QuantizedRows take_codes(Runtime& runtime, const LinearArgs& args, std::int64_t k) {
  const std::int64_t m = args.n_rows;
  float* memory = runtime.shared_scratch(static_cast<std::size_t>(2 * m));
  QuantizedRows out{
      args.x_int8, args.x_int8_stride, memory, reinterpret_cast<std::int32_t*>(memory + m), nullptr, {}};
  std::copy(args.x_scales, args.x_scales + m, out.scales);
  runtime.parallel(m, k, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      runtime.gemm_s8.sums({k, args.x_int8 + i * args.x_int8_stride, k, out.sums + i});
  });
  return out;
}

QuantizedRows quantize_rows(Runtime& runtime, const LinearArgs& args, const QuantizedLinear& weight,
                            std::int64_t group) {
  const std::int64_t m = args.n_rows;
  const std::int64_t k = weight.n_in();
  const std::int64_t n_groups = group > 0 ? ceil_div(k, group) : 0;
  const std::int64_t stride = ceil_div(k, 8) * 8;
  static_assert(sizeof(Elements) % sizeof(float) == 0);
  const std::int64_t element_floats =
      m * kRowOutliers * static_cast<std::int64_t>(sizeof(Elements) / sizeof(float));
  float* memory =
      runtime.shared_scratch(static_cast<std::size_t>(m * (2 + n_groups) + element_floats + m * stride / 4));
  float* more = memory + 2 * m;
  auto* elements = reinterpret_cast<Elements*>(more + m * n_groups);
  auto* codes = reinterpret_cast<std::int8_t*>(more + m * n_groups + element_floats);
  QuantizedRows out{codes,
                    stride,
                    memory,
                    reinterpret_cast<std::int32_t*>(memory + m),
                    reinterpret_cast<std::int32_t*>(more),
                    {}};
  const auto sum_groups = [&](std::int64_t row) {
    if (group > 0) runtime.gemm_s8.sums({k, out.q + row * stride, group, out.group_sums + row * n_groups});
  };
  const bool norms = args.norm != LinearInput::Norm::kNone;
  if (norms) runtime.reserve_thread_scratch(static_cast<std::size_t>(k));
  std::atomic<bool> any = false;
  runtime.parallel(m, 6 * k, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* normed = norms ? runtime.thread_scratch(thread) : nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      const float* x = input_row(runtime, args, i, k, normed);
      std::int8_t* q = codes + i * stride;
      std::fill(q + k, q + stride, std::int8_t{0});
      elements[i * kRowOutliers].channel = -1;
      if (args.x_quant.step > 0) {
        quantize_static(runtime, args.x_quant, k, x, q, out.scales[i], out.sums[i]);
        sum_groups(i);
        continue;
      }
      std::int32_t square_sum = 0;
      runtime.gemm_s8.quantize({k, x, q, out.scales + i, out.sums + i, &square_sum});
      sum_groups(i);
      // A look at the codes first: few rows need the second one.
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
  if (!any) return out;
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
      runtime.gemm_s8.quantize({k, rest, codes + i * stride, out.scales + i, out.sums + i});
      sum_groups(i);
    }
  });
  out.outliers = {elements, columns, n_padded, &weight};
  return out;
}

void multiply_s8_panels(const Runtime& runtime, const LinearArgs& args, const QuantizedRows& rows,
                        const S8Panels& panels, std::int64_t row_begin, std::int64_t row_end,
                        float* products) {
  const std::int64_t n_rows_all = row_end - row_begin;
  const std::int64_t n_tiles = ceil_div(n_rows_all, runtime.gemm_s8.max_rows);
  const std::int64_t half = panels.n * kernels::kS8PanelWidth;
  const std::int64_t stride = panels.up != nullptr ? 2 * half : half;
  const auto multiply = [&](std::int64_t begin, int n_rows, const std::uint8_t* data, const float* scales,
                            float* to) {
    for (std::int64_t p = 0; p < panels.n; ++p)
      runtime.gemm_s8.tile({n_rows, kernels::s8_quads(panels.k), rows.q + begin * rows.stride, rows.stride,
                            data + p * panels.panel_bytes, rows.scales + begin, rows.sums + begin,
                            scales + p * kernels::kS8PanelWidth, to + p * kernels::kS8PanelWidth, stride});
  };
  for (std::int64_t t = 0; t < n_tiles; ++t) {
    const std::int64_t begin = row_begin + t * n_rows_all / n_tiles;
    const int n_rows = static_cast<int>(row_begin + (t + 1) * n_rows_all / n_tiles - begin);
    multiply(begin, n_rows, panels.data, panels.column_scales, products);
    if (panels.up != nullptr) multiply(begin, n_rows, panels.up, panels.up_column_scales, products + half);
    for (int r = 0; r < n_rows; ++r) {
      float* row = products + r * stride;
      add_outliers(rows, begin + r, panels.first_column, panels.n_columns, row);
      if (panels.up != nullptr)
        add_outliers(rows, begin + r, panels.n_half + panels.first_column, panels.n_columns, row + half);
      if (panels.up != nullptr) {
        finish_gated_row(runtime, args, panels.bias, panels.n_half, begin + r, panels.first_column,
                         panels.n_columns, row, row + half);
      } else {
        finish_row(runtime, args, panels.bias, begin + r, panels.first_column, panels.n_columns, row);
      }
    }
  }
}

namespace {

std::int64_t panels_together(const Runtime& runtime, std::int64_t n_panels, std::int64_t panel_bytes) {
  constexpr std::int64_t kGroup_bytes = 512 * 1024;
  constexpr std::int64_t kMaxGroup = 4;  // 256 columns are enough for an epilogue to be cheap
  std::int64_t group = std::clamp<std::int64_t>(kGroup_bytes / panel_bytes, 1, kMaxGroup);
  while (group > 1 && ceil_div(n_panels, group) < wanted_pieces(runtime)) --group;
  return group;
}

}  // namespace

PanelCut cut_panels(const Runtime& runtime, std::int64_t n_panels, std::int64_t panel_bytes,
                    std::int64_t n_rows) {
  PanelCut out;
  out.together = panels_together(runtime, n_panels, panel_bytes);
  // As many groups for each thread, of nearly equal sizes.
  out.n_groups = std::min(
      n_panels, ceil_div(ceil_div(n_panels, out.together), runtime.n_threads()) * runtime.n_threads());
  const std::int64_t most_splits = std::max<std::int64_t>(1, n_rows / (4 * runtime.gemm_s8.max_rows));
  out.n_splits = std::clamp<std::int64_t>(ceil_div(wanted_pieces(runtime), out.n_groups), 1, most_splits);
  out.loop = runtime.plan_loop(out.n_groups * out.n_splits,
                               out.together * panel_bytes * ceil_div(n_rows, out.n_splits));
  return out;
}

void for_panel_items(Runtime& runtime, std::int64_t n_panels, std::int64_t n_rows, const PanelCut& cut,
                     FunctionRef<void(const PanelItem& item, int thread)> body) {
  const std::int64_t n_groups = cut.n_groups;
  const std::int64_t n_splits = cut.n_splits;
  runtime.parallel(cut.loop, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t g = i / n_splits;
      const std::int64_t s = i % n_splits;
      body({g * n_panels / n_groups, (g + 1) * n_panels / n_groups, s * n_rows / n_splits,
            (s + 1) * n_rows / n_splits},
           thread);
    }
  });
}

}  // namespace triptych::cpu
