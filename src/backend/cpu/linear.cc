#include "backend/cpu/linear.h"

#include <algorithm>

#include "backend/cpu/kernels/tiles/tile_scope.h"
#include "base/error.h"
#include "base/half.h"

namespace triptych::cpu {
namespace {

// Sizes of blocks; evidence is in linear_bench.cc.
constexpr std::int64_t kBlockK = 512;        // of one pass over k
constexpr std::int64_t kGroupColumns = 128;  // of the weight packed at once: [512][128] floats are 256 KB
constexpr std::int64_t kBlockRows = 768;     // rows of x packed at once
constexpr std::int64_t kPacked_floats = std::int64_t{4} << 20;  // and their size
constexpr std::int64_t kMaxPanelWidth = 64;
constexpr std::int64_t kStreamedRows = 96;          // of x packed at once when the weight is streamed
constexpr std::int64_t kStream_bytes = 256 * 1024;  // of the weight, one piece of work with few rows
// Many rows pass over k in pieces, so that those of one call of the kernel stay in the first-level cache
// while they meet the columns of a piece of work.
constexpr std::int64_t kStreamedK = 1024;
constexpr std::int64_t kStreamedColumns = 32;

// Where a matrix row lies: piece `index` of all parts, each cut into pieces of `step` rows.
struct RowRange {
  const CpuLinear::Part* part;
  std::int64_t begin;  // in the part
  std::int64_t end;
};

std::int64_t count_ranges(const CpuLinear& w, std::int64_t step) {
  std::int64_t n = 0;
  for (const CpuLinear::Part& part : w.parts()) n += ceil_div(part.n_rows, step);
  return n;
}

RowRange range_at(const CpuLinear& w, std::int64_t step, std::int64_t index) {
  for (const CpuLinear::Part& part : w.parts()) {
    const std::int64_t n = ceil_div(part.n_rows, step);
    if (index < n) return {&part, index * step, std::min(part.n_rows, (index + 1) * step)};
    index -= n;
  }
  TRIPTYCH_CHECK(false, "piece {} beyond the matrix", index);
  return {};
}

const kernels::GemmKernels& tiles_of(const Runtime& runtime, const LinearCall& call) {
  return call.gemm != nullptr ? *call.gemm : runtime.gemm;
}

const std::byte* row_address(const CpuLinear::Part& part, std::int64_t row) {
  return part.data + row * part.row_stride * static_cast<std::ptrdiff_t>(element_bytes(part.type));
}

// One block of rows of x in tiles of nearly equal height, k in blocks of nearly equal length.
struct Blocking {
  std::int64_t row_begin;
  std::int64_t n_rows;
  std::int64_t n_tiles;
  std::int64_t k;
  std::int64_t n_k_blocks;

  std::int64_t tile_begin(std::int64_t t) const { return t * n_rows / n_tiles; }
  std::int64_t k_begin(std::int64_t b) const {
    return std::min(k, b * ceil_div(ceil_div(k, n_k_blocks), 16) * 16);
  }
  // Packed x: for each block of k, for each tile, [k][rows].
  std::int64_t packed_at(std::int64_t b, std::int64_t t) const {
    return k_begin(b) * n_rows + (k_begin(b + 1) - k_begin(b)) * tile_begin(t);
  }
};

void pack_x(Runtime& runtime, const LinearCall& call, const Blocking& blocking, float* packed) {
  const std::int64_t n = blocking.n_tiles * blocking.n_k_blocks;
  runtime.parallel(n, 8 * blocking.k * blocking.n_rows / n, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / blocking.n_tiles;
      const std::int64_t t = i % blocking.n_tiles;
      const std::int64_t first = blocking.tile_begin(t);
      const int rows = static_cast<int>(blocking.tile_begin(t + 1) - first);
      const void* row[32];
      for (int r = 0; r < rows; ++r) row[r] = call.x + (blocking.row_begin + first + r) * call.x_stride;
      const std::int64_t k0 = blocking.k_begin(b);
      tiles_of(runtime, call)
          .pack({row, rows, ElementType::kF32, k0, static_cast<int>(blocking.k_begin(b + 1) - k0), 1.0F,
                 packed + blocking.packed_at(b, t), rows});
    }
  });
}

// How the panels of output columns are handed out: a group of them, or some of its rows, is a piece of work.
struct Division {
  std::int64_t panels_per_group;
  std::int64_t n_groups;
  std::int64_t n_row_splits;  // of a group's rows
};

// Groups as large as the second-level cache likes while every thread still gets a few; then rows are split
// too, at the price of packing a panel more than once.
Division divide(const Runtime& runtime, const LinearCall& call, const Blocking& blocking) {
  const CpuLinear& w = call.weight;
  const std::int64_t width = tiles_of(runtime, call).panel_width;
  const std::int64_t wanted = runtime.n_threads() == 1 ? 1 : std::int64_t{3} * runtime.n_threads();
  std::int64_t group = kGroupColumns / width;
  while (group > 1 && count_ranges(w, group * width) < wanted) group /= 2;
  const std::int64_t n_groups = count_ranges(w, group * width);
  const std::int64_t most_splits = std::max<std::int64_t>(1, blocking.n_tiles / 4);
  return {group, n_groups, std::clamp<std::int64_t>(ceil_div(wanted, n_groups), 1, most_splits)};
}

// The columns of `range` times tiles [tile_begin, tile_end) of the packed rows. Inner loops: for a block of
// k, the panels are packed into the second-level cache; each tile of x meets all of them from the first-level
// cache.
void multiply_group(const Runtime& runtime, const LinearCall& call, const Blocking& blocking,
                    const RowRange& range, std::int64_t tile_begin, std::int64_t tile_end,
                    const float* packed, float* scratch) {
  const kernels::GemmKernels& gemm = tiles_of(runtime, call);
  const std::int64_t width = gemm.panel_width;
  const std::int64_t n_panels = ceil_div(range.end - range.begin, width);
  const std::int64_t stride = n_panels * width;  // of the products
  const std::int64_t first_row = blocking.tile_begin(tile_begin);
  float* panels = scratch;
  float* products = scratch + n_panels * kBlockK * width;
  for (std::int64_t b = 0; b < blocking.n_k_blocks; ++b) {
    const std::int64_t k0 = blocking.k_begin(b);
    const int k = static_cast<int>(blocking.k_begin(b + 1) - k0);
    if (k == 0) continue;
    for (std::int64_t p = 0; p < n_panels; ++p) {
      const std::int64_t column = range.begin + p * width;
      const int n_columns = static_cast<int>(std::min(range.end - column, width));
      const void* row[kMaxPanelWidth];
      for (int r = 0; r < n_columns; ++r) row[r] = row_address(*range.part, column + r);
      gemm.pack(
          {row, n_columns, range.part->type, k0, k, 1.0F, panels + p * k * width, static_cast<int>(width)});
    }
    for (std::int64_t t = tile_begin; t < tile_end; ++t) {
      const std::int64_t first = blocking.tile_begin(t);
      const int rows = static_cast<int>(blocking.tile_begin(t + 1) - first);
      const bool in_place = gemm.tiles != nullptr;
      const float* a = in_place ? call.x + (blocking.row_begin + first) * call.x_stride + k0
                                : packed + blocking.packed_at(b, t);
      for (std::int64_t p = 0; p < n_panels; ++p)
        gemm.tile({rows, k, a, in_place ? call.x_stride : rows, panels + p * k * width,
                   products + (first - first_row) * stride + p * width, stride, b > 0});
    }
  }
  for (std::int64_t m = first_row; m < blocking.tile_begin(tile_end); ++m)
    finish_row(runtime, call, call.weight.bias(), blocking.row_begin + m, range.part->first_row + range.begin,
               range.end - range.begin, products + (m - first_row) * stride);
}

void multiply_block(Runtime& runtime, const LinearCall& call, const Blocking& blocking) {
  const Division division = divide(runtime, call, blocking);
  const std::int64_t group_width = division.panels_per_group * tiles_of(runtime, call).panel_width;
  float* packed = runtime.shared_scratch(static_cast<std::size_t>(blocking.k * blocking.n_rows + 64));
  runtime.reserve_thread_scratch(static_cast<std::size_t>((kBlockK + blocking.n_rows) * group_width));
  if (tiles_of(runtime, call).tiles == nullptr) pack_x(runtime, call, blocking, packed);
  const std::int64_t n_row_splits = division.n_row_splits;
  const auto item = [&](std::int64_t index, int thread) {
    const kernels::TileScope scope(tiles_of(runtime, call).tiles);
    const std::int64_t split = index % n_row_splits;
    multiply_group(runtime, call, blocking, range_at(call.weight, group_width, index / n_row_splits),
                   split * blocking.n_tiles / n_row_splits, (split + 1) * blocking.n_tiles / n_row_splits,
                   packed, runtime.thread_scratch(thread));
  };
  const std::int64_t n_items = division.n_groups * n_row_splits;
  // A product of a few hundred thousand operations is done before another thread wakes.
  constexpr std::int64_t kSmall = 200 * 1000;
  if (blocking.n_rows * blocking.k * call.weight.n_out() < kSmall) {
    for (std::int64_t i = 0; i < n_items; ++i) item(i, 0);
  } else {
    runtime.parallel_each(n_items, item);
  }
}

// The rows of x in nearly equal groups, each for one call of the kernel, packed as kernels/gemv/gemv.h says:
// once for bf16 matrices and once for others, as far as the weight has such parts.
class PackedVectors {
 public:
  PackedVectors(Runtime& runtime, const LinearCall& call)
      : call_(call), lanes_(runtime.gemv.lanes), n_groups_(ceil_div(call.n_rows, runtime.gemv.max_vectors)) {
    const std::int64_t floats =
        kernels::gemv_x_floats(lanes_, static_cast<int>(call.n_rows), call.weight.n_in());
    float* memory = runtime.shared_scratch(static_cast<std::size_t>(2 * floats));
    for (const CpuLinear::Part& part : call.weight.parts()) {
      float*& x = part.type == ElementType::kBF16 ? pairs_ : plain_;
      if (x != nullptr) continue;
      x = memory;
      memory += floats;
      runtime.parallel(n_groups_, 8 * call.weight.n_in() * runtime.gemv.max_vectors,
                       [&](std::int64_t begin, std::int64_t end, int) {
                         for (std::int64_t g = begin; g < end; ++g) pack(part.type, g, x);
                       });
    }
  }

  std::int64_t n_groups() const { return n_groups_; }
  std::int64_t begin(std::int64_t g) const { return g * call_.n_rows / n_groups_; }
  const float* x(ElementType type, std::int64_t g) const {
    return address(g, type == ElementType::kBF16 ? pairs_ : plain_);
  }

 private:
  float* address(std::int64_t g, float* x) const {
    return x + kernels::gemv_x_floats(lanes_, static_cast<int>(begin(g)), call_.weight.n_in());
  }

  void pack(ElementType type, std::int64_t g, float* all) const {
    const std::int64_t k = call_.weight.n_in();
    const int n = static_cast<int>(begin(g + 1) - begin(g));
    const std::int64_t half = static_cast<std::int64_t>(n) * lanes_;  // distance of the halves of a group
    const bool pairs = type == ElementType::kBF16;
    for (int m = 0; m < n; ++m) {
      const float* from = call_.x + (begin(g) + m) * call_.x_stride;
      float* to = address(g, all) + m * lanes_;
      for (std::int64_t i = 0; i < k; i += 2 * lanes_, to += 2 * half) {
        for (std::int64_t lane = 0; lane < lanes_; ++lane) {
          const std::int64_t first = i + (pairs ? 2 * lane : lane);
          const std::int64_t second = i + (pairs ? 2 * lane + 1 : lanes_ + lane);
          to[lane] = first < k ? from[first] : 0.0F;
          to[half + lane] = second < k ? from[second] : 0.0F;
        }
      }
    }
  }

  const LinearCall& call_;
  int lanes_;
  std::int64_t n_groups_;
  float* plain_ = nullptr;
  float* pairs_ = nullptr;
};

// Pieces of about kStream_bytes of the weight.
bool cuts_k(const Runtime& runtime, const CpuLinear& w, std::int64_t n_rows) {
  return n_rows > runtime.gemv.max_vectors && w.n_in() > kStreamedK;
}

ProductPlan plan_few_rows(const Runtime& runtime, const CpuLinear& w, std::int64_t n_rows) {
  const std::int64_t row_bytes = w.n_in() * 4;
  ProductPlan out;
  out.step = cuts_k(runtime, w, n_rows) ? kStreamedColumns
                                        : std::clamp<std::int64_t>(kStream_bytes / row_bytes / 8 * 8, 8, 256);
  out.n_panels = count_ranges(w, out.step);
  out.loop = runtime.plan_loop(out.n_panels, out.step * row_bytes);
  return out;
}

// Rows [begin, begin + n) of a call.
LinearArgs rows_of(const LinearArgs& args, std::int64_t begin, std::int64_t n) {
  LinearArgs out = args;
  out.n_rows = n;
  out.x += begin * args.x_stride;
  if (args.residual != nullptr) out.residual += begin * args.residual_stride;
  if (args.y != nullptr) out.y += begin * args.y_stride;
  if (args.y_int8 != nullptr) out.y_int8 += begin * args.y_int8_stride;
  if (args.y_scales != nullptr) out.y_scales += begin;
  return out;
}

// One block of rows.
void stream_rows(Runtime& runtime, const LinearCall& call, const ProductPlan& plan) {
  const CpuLinear& w = call.weight;
  const std::int64_t step = plan.step;
  const PackedVectors vectors(runtime, call);
  const std::int64_t k = w.n_in();
  const std::int64_t k_step = cuts_k(runtime, w, call.n_rows) ? kStreamedK : k;
  const std::int64_t n_products = ceil_div(step * call.n_rows, 16) * 16;
  const std::int64_t n_sums = k_step < k ? step * call.n_rows * runtime.gemv.lanes : 0;
  runtime.reserve_thread_scratch(static_cast<std::size_t>(n_products + n_sums));
  const auto piece = [&](std::int64_t index, int thread) {
    const RowRange range = range_at(w, step, index);
    const std::int64_t n_columns = range.end - range.begin;
    float* products = runtime.thread_scratch(thread);
    const std::byte* const rows = row_address(*range.part, range.begin);
    const auto element = static_cast<std::ptrdiff_t>(element_bytes(range.part->type));
    for (std::int64_t k0 = 0; k0 < k; k0 += k_step)
      for (std::int64_t g = 0; g < vectors.n_groups(); ++g) {
        const std::int64_t n_vectors = vectors.begin(g + 1) - vectors.begin(g);
        runtime.gemv.gemv({rows + k0 * element, range.part->row_stride, range.part->type,
                           static_cast<int>(n_columns), std::min(k_step, k - k0),
                           vectors.x(range.part->type, g) + k0 * n_vectors, static_cast<int>(n_vectors),
                           products + vectors.begin(g) * step, step,
                           products + n_products + vectors.begin(g) * step * runtime.gemv.lanes, k0 == 0,
                           k0 + k_step >= k});
      }
    for (std::int64_t m = 0; m < call.n_rows; ++m)
      finish_row(runtime, call, call.weight.bias(), m, range.part->first_row + range.begin, n_columns,
                 products + m * step);
  };
  runtime.parallel(plan.loop, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) piece(i, thread);
  });
}

}  // namespace

namespace {

// Where columns from `first` on of a row of int8 outputs go; nowhere when y is floats.
kernels::Int8Output int8_output_at(const LinearArgs& args, std::int64_t row, std::int64_t first) {
  if (args.y_int8 == nullptr) return {};
  return {args.y_int8 + row * args.y_int8_stride + first, 1.0F / args.y_quant.step, args.y_quant.offset,
          args.y_scales + row};
}

// The same of floats.
float* floats_at(const LinearArgs& args, std::int64_t row, std::int64_t first) {
  return args.y_int8 == nullptr ? args.y + row * args.y_stride + first : nullptr;
}

}  // namespace

void begin_int8_rows(const LinearArgs& args) {
  std::fill_n(args.y_scales, args.n_rows, args.y_quant.step);
  for (std::int64_t i = 0; i < args.n_rows; ++i) {
    std::int8_t* row = args.y_int8 + i * args.y_int8_stride;
    std::fill(row + args.n_y_int8, row + args.y_int8_stride, std::int8_t{0});
  }
}

void finish_row(const Runtime& runtime, const LinearArgs& args, const float* bias, std::int64_t row,
                std::int64_t first, std::int64_t n, const float* products) {
  runtime.pointwise.epilogue(
      {args.function, n, products, bias != nullptr ? bias + first : nullptr,
       args.residual != nullptr ? args.residual + row * args.residual_stride + first : nullptr,
       floats_at(args, row, first), args.lean, int8_output_at(args, row, first)});
}

void finish_gated_row(const Runtime& runtime, const LinearArgs& args, const float* bias, std::int64_t n_half,
                      std::int64_t row, std::int64_t first, std::int64_t n, const float* gate,
                      const float* up) {
  runtime.pointwise.gated({args.function, n, gate, up, bias != nullptr ? bias + first : nullptr,
                           bias != nullptr ? bias + n_half + first : nullptr, floats_at(args, row, first),
                           args.lean, int8_output_at(args, row, first)});
}

std::vector<float> stacked_bias(const LinearSpec& spec) {
  std::vector<float> out;
  bool any = false;
  for (const LinearPart& part : spec.parts) {
    const std::int64_t n_rows = part.n_out();
    const std::size_t first = out.size();
    out.resize(first + static_cast<std::size_t>(n_rows), 0.0F);
    const TensorView& bias = part.bias.view;
    if (bias.data() == nullptr) continue;
    any = true;
    if (bias.rank() != 1 || bias.dim(0) != n_rows)
      fail(ErrorCode::kInvalidFile, "{}: expected a bias [{}], got {}", part.bias.name, n_rows,
           to_string(bias.shape()));
    kernels::row_kernels(Isa::kScalar)
        .widen(element_type_of(bias.dtype(), part.bias.name), n_rows, bias.cdata(), out.data() + first);
  }
  return any ? out : std::vector<float>{};
}

CpuLinear::CpuLinear(const LinearSpec& spec) {
  if (spec.parts.empty()) fail(ErrorCode::kInvalidFile, "{}: a linear without a matrix", spec.name);
  for (const LinearPart& part : spec.parts) {
    TRIPTYCH_CHECK(part.dense() != nullptr, "{}: expected floats", part.name());
    add_part(*part.dense());
    advise(*part.dense(), ReadPattern::kWhole);  // an output layer may be the embedding
    if (part.bias.view.data() != nullptr) read_bytes_ += part.bias.view.size_bytes();
  }
  bias_ = stacked_bias(spec);
  const bool in_words = std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.type == ElementType::kBF16 && part.row_stride % 2 == 0;
  });
  if (in_words && n_in_ % 2 == 0) words_ = std::make_unique<CpuLinear>(*this, n_in_ / 2);
}

CpuLinear::CpuLinear(const CpuLinear& bf16, std::int64_t n_words)
    : parts_(bf16.parts_),
      bias_(bf16.bias_),
      n_out_(bf16.n_out_),
      n_in_(n_words),
      read_bytes_(bf16.read_bytes_) {
  for (Part& part : parts_) {
    part.type = ElementType::kF32;  // moved, never computed with
    part.row_stride /= 2;
  }
}

ProductPlan CpuLinear::plan(const Runtime& runtime, const LinearArgs& args) const {
  const LinearAlgorithm algorithm = linear_algorithm(
      args.n_rows, words_ != nullptr && runtime.gemm_bf16 != nullptr, runtime.policy, runtime.tuning);
  ProductPlan out;
  if (algorithm == LinearAlgorithm::kStreamed) out = plan_few_rows(runtime, *this, args.n_rows);
  out.algorithm = algorithm;
  return out;
}

void CpuLinear::run(Runtime& runtime, const LinearArgs& args, const ProductPlan& plan) const {
  if (plan.algorithm == LinearAlgorithm::kTiledBf16) return multiply_bf16(runtime, args);
  if (plan.algorithm == LinearAlgorithm::kTiled) return linear_many_rows(runtime, {*this, args});
  linear_few_rows(runtime, {*this, args}, plan);
}

void CpuLinear::multiply_bf16(Runtime& runtime, const LinearArgs& args) const {
  const std::int64_t n_words = n_in_ / 2;
  // Tiles take these rows as they are: with zeros up to whole steps, and lines of a tile that do not share
  // their place in the first-level cache.
  const bool tiles = runtime.gemm_bf16->tiles != nullptr;
  constexpr std::int64_t kStep = 16;
  std::int64_t stride = tiles ? ceil_div(n_words, kStep) * kStep : n_words;
  if (tiles && stride % 1024 == 0) stride += kStep;
  const std::int64_t n_read = args.n_rows + (tiles ? kernels::kTileHeight - 1 : 0);
  float* x = runtime.second_scratch(static_cast<std::size_t>(n_read * stride));
  runtime.parallel(n_read, 6 * n_in_, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* row = x + i * stride;
      std::fill(i < args.n_rows ? row + n_words : row, row + stride, 0.0F);
      if (i < args.n_rows) runtime.rows.narrow(ElementType::kBF16, n_in_, args.x + i * args.x_stride, row);
    }
  });
  LinearArgs words = args;
  words.x = x;
  words.x_stride = stride;
  linear_many_rows(runtime, {*words_, words, runtime.gemm_bf16});
}

void CpuLinear::add_part(const WeightEntry& weight) {
  const TensorView& view = weight.view;
  if (view.rank() != 2 || view.data() == nullptr || view.dim(0) < 1 || view.dim(1) < 1)
    fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got {}", weight.name,
         to_string(view.shape()));
  if (!parts_.empty() && view.dim(1) != n_in_)
    fail(ErrorCode::kInvalidFile, "{}: expected [N, {}] beside the other matrices, got {}", weight.name,
         n_in_, to_string(view.shape()));
  const ElementType type = element_type_of(view.dtype(), weight.name);
  parts_.push_back({view.data(), view.row_stride(), type, n_out_, view.dim(0), weight.owner});
  n_in_ = view.dim(1);
  n_out_ += view.dim(0);
  read_bytes_ += view.size_bytes();
}

void linear_few_rows(Runtime& runtime, const LinearCall& call) {
  linear_few_rows(runtime, call, plan_few_rows(runtime, call.weight, call.n_rows));
}

void linear_few_rows(Runtime& runtime, const LinearCall& call, const ProductPlan& plan) {
  const std::int64_t n_blocks = ceil_div(call.n_rows, kStreamedRows);
  for (std::int64_t i = 0; i < n_blocks; ++i) {
    const std::int64_t begin = i * call.n_rows / n_blocks;
    const std::int64_t n = (i + 1) * call.n_rows / n_blocks - begin;
    stream_rows(runtime, {call.weight, rows_of(call, begin, n)}, plan);
  }
}

void linear_many_rows(Runtime& runtime, const LinearCall& call) {
  const std::int64_t k = call.weight.n_in();
  const std::int64_t limit = std::min(kBlockRows, std::max<std::int64_t>(kBlockRows / 4, kPacked_floats / k));
  const std::int64_t n_blocks = ceil_div(call.n_rows, limit);
  for (std::int64_t i = 0; i < n_blocks; ++i) {
    const std::int64_t begin = i * call.n_rows / n_blocks;
    const std::int64_t rows = (i + 1) * call.n_rows / n_blocks - begin;
    multiply_block(runtime, call,
                   {begin, rows, ceil_div(rows, tiles_of(runtime, call).max_rows), k, ceil_div(k, kBlockK)});
  }
}

}  // namespace triptych::cpu
