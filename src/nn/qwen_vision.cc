#include "nn/qwen_vision.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/config_numbers.h"

namespace triptych {
namespace {

std::int64_t count_patches(std::span<const VisionFrame> frames, int merge_size) {
  std::int64_t n = 0;
  for (const VisionFrame& f : frames) {
    TRIPTYCH_CHECK(f.grid_h > 0 && f.grid_w > 0 && f.grid_h % merge_size == 0 && f.grid_w % merge_size == 0,
                   "[qwen_vision] a grid of {}x{} patches with merge size {}", f.grid_h, f.grid_w,
                   merge_size);
    n += f.n_patches();
  }
  TRIPTYCH_CHECK(n < (std::int64_t{1} << 31), "[qwen_vision] {} patches", n);
  return n;
}

}  // namespace

std::size_t leading_frames(std::span<const VisionFrame> frames, std::int64_t max_patches) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    n += frames[i].n_patches();
    if (n > max_patches) return std::max<std::size_t>(i, 1);
  }
  return frames.size();
}

std::vector<float> axial_inverse_frequencies(int head_dim, double theta) {
  TRIPTYCH_CHECK(head_dim > 0 && head_dim % 4 == 0, "[qwen_vision] heads of {}", head_dim);
  const int spatial_dim = head_dim / 2;
  std::vector<float> out;
  for (int i = 0; i < spatial_dim; i += 2)
    out.push_back(
        1.0F / std::pow(static_cast<float>(theta), static_cast<float>(i) / static_cast<float>(spatial_dim)));
  return out;
}

namespace {

void fill_axial_angles(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                       std::span<const float> inverse_frequencies, const RopeAngles& out) {
  const ArenaScope scratch(cx.arena());
  const std::size_t half = inverse_frequencies.size();
  // Few positions occur: their sines are computed once.
  int n_positions = 0;
  for (const VisionFrame& f : frames) n_positions = std::max({n_positions, f.grid_h, f.grid_w});
  const auto cos = cx.arena().make_span<float>(static_cast<std::size_t>(n_positions) * half);
  const auto sin = cx.arena().make_span<float>(cos.size());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const float angle = static_cast<float>(i / half) * inverse_frequencies[i % half];
    cos[i] = std::cos(angle);
    sin[i] = std::sin(angle);
  }
  float* to_cos = out.cos.f32();
  float* to_sin = out.sin.f32();
  const auto put = [&](int position) {
    const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(position) * half);
    to_cos = std::copy_n(cos.begin() + from, half, to_cos);
    to_sin = std::copy_n(sin.begin() + from, half, to_sin);
  };
  for (const VisionFrame& f : frames)
    for (int block_h = 0; block_h < f.grid_h; block_h += merge_size)
      for (int block_w = 0; block_w < f.grid_w; block_w += merge_size)
        for (int i = 0; i < merge_size * merge_size; ++i) {
          put(block_h + i / merge_size);
          put(block_w + i % merge_size);
        }
}

}  // namespace

RopeAngles axial_rope_angles(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                             std::span<const float> inverse_frequencies) {
  const std::int64_t n = count_patches(frames, merge_size);
  const Shape shape{n, static_cast<std::int64_t>(2 * inverse_frequencies.size())};  // [P, Dh/2]
  const RopeAngles out{cx.empty_host(shape), cx.empty_host(shape)};
  fill_axial_angles(cx, frames, merge_size, inverse_frequencies, out);
  return {cx.upload(out.cos), cx.upload(out.sin)};
}

namespace {

// Where a place of a side of `length` patches lies on a side of the table, and how far it is from the row
// before it. In float32, as the reference computes it.
struct TablePlace {
  std::int64_t before, after;  // rows of the table
  float share;                 // of `after`
};
TablePlace table_place(int index, int length, int side) {
  const float at =
      static_cast<float>(index) * static_cast<float>(side - 1) / static_cast<float>(std::max(length - 1, 1));
  const float floor = std::floor(at);
  const auto before = static_cast<std::int64_t>(floor);
  return {before, std::min<std::int64_t>(before + 1, side - 1), at - floor};
}

}  // namespace

TensorView interpolated_positions(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                                  const Tensor& table) {
  const auto side = static_cast<int>(std::lround(std::sqrt(static_cast<double>(table.shape().dim(0)))));
  TRIPTYCH_CHECK(table.shape().rank() == 2 && table.shape().dim(0) == std::int64_t{side} * side,
                 "[qwen_vision] positions {}", to_string(table.shape()));
  const std::int64_t d = table.shape().dim(1);
  const TensorView out = cx.empty_host({count_patches(frames, merge_size), d});
  const float* from = table.f32();
  float* to = out.f32();
  const auto put = [&](const TablePlace& y, const TablePlace& x) {
    const float* corners[] = {from + (y.before * side + x.before) * d, from + (y.before * side + x.after) * d,
                              from + (y.after * side + x.before) * d, from + (y.after * side + x.after) * d};
    const float weights[] = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share, y.share * (1 - x.share),
                             y.share * x.share};
    for (std::int64_t c = 0; c < d; ++c)
      to[c] = corners[0][c] * weights[0] + corners[1][c] * weights[1] + corners[2][c] * weights[2] +
              corners[3][c] * weights[3];
    to += d;
  };
  for (const VisionFrame& f : frames)
    for (int block_h = 0; block_h < f.grid_h; block_h += merge_size)
      for (int block_w = 0; block_w < f.grid_w; block_w += merge_size)
        for (int i = 0; i < merge_size * merge_size; ++i)
          put(table_place(block_h + i / merge_size, f.grid_h, side),
              table_place(block_w + i % merge_size, f.grid_w, side));
  return cx.upload(out);
}

std::span<const std::int32_t> frame_segments(ExecContext& cx, std::span<const VisionFrame> frames) {
  const auto out = cx.arena().make_span<std::int32_t>(frames.size() + 1);
  out[0] = 0;
  for (std::size_t i = 0; i < frames.size(); ++i)
    out[i + 1] = out[i] + static_cast<std::int32_t>(frames[i].n_patches());
  return out;
}

WindowOrder window_order(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                         int window_blocks) {
  TRIPTYCH_CHECK(window_blocks > 0, "[qwen_vision] windows of {} blocks", window_blocks);
  const int unit = merge_size * merge_size;
  const std::int64_t n_blocks = count_patches(frames, merge_size) / unit;
  const auto windows_along = [&](int blocks) { return (blocks + window_blocks - 1) / window_blocks; };
  std::size_t n_windows = 0;
  for (const VisionFrame& f : frames)
    n_windows += static_cast<std::size_t>(windows_along(f.grid_h / merge_size)) *
                 static_cast<std::size_t>(windows_along(f.grid_w / merge_size));
  const auto blocks = cx.arena().make_span<std::int32_t>(static_cast<std::size_t>(n_blocks));
  const auto segments = cx.arena().make_span<std::int32_t>(n_windows + 1);
  std::size_t place = 0;
  std::size_t window = 0;
  std::int32_t frame_start = 0;
  segments[0] = 0;
  for (const VisionFrame& f : frames) {
    const int rows = f.grid_h / merge_size;
    const int cols = f.grid_w / merge_size;
    for (int top = 0; top < rows; top += window_blocks)
      for (int left = 0; left < cols; left += window_blocks) {
        for (int r = top; r < std::min(top + window_blocks, rows); ++r)
          for (int c = left; c < std::min(left + window_blocks, cols); ++c)
            blocks[place++] = frame_start + r * cols + c;
        segments[++window] = static_cast<std::int32_t>(place) * unit;
      }
    frame_start += rows * cols;
  }
  return {blocks, segments};
}

TensorView VisionAttention::operator()(ExecContext& cx, const LinearInput& x) const {
  const std::int64_t d = x.rows.dim(1);
  const std::int64_t dh = d / n_heads;
  TensorView y = cx.linear(qkv, x);                             // [P, 3 Dv]
  TensorView q = y.cols(0, d).split_last(n_heads, dh);          // [P, H, Dh]
  TensorView k = y.cols(d, 2 * d).split_last(n_heads, dh);      // [P, H, Dh]
  TensorView v = y.cols(2 * d, 3 * d).split_last(n_heads, dh);  // [P, H, Dh]
  cx.rope(q, rope.cos, rope.sin);
  cx.rope(k, rope.cos, rope.sin);
  return cx.attention({.q = q,
                       .k = k,
                       .v = v,
                       .cu_q = segments,
                       .cu_k = segments,
                       .scale = 1.0F / std::sqrt(static_cast<float>(dh)),
                       .causal = false});  // [P, Dv]
}

QwenVisionConfig QwenVisionConfig::parse(const JsonView& c, std::string_view width_key,
                                         const QwenVisionConfig& defaults) {
  QwenVisionConfig out = defaults;
  out.depth = static_cast<int>(c.get_int("depth", out.depth, 1, 1024));
  out.width = c.get_int(width_key, out.width, 1, 65536);
  out.n_heads = static_cast<int>(c.get_int("num_heads", out.n_heads, 1, 1024));
  out.patch_size_px = static_cast<int>(c.get_int("patch_size", out.patch_size_px, 1, 256));
  out.temporal_patch_size =
      static_cast<int>(c.get_int("temporal_patch_size", out.temporal_patch_size, 1, 16));
  out.merge_size = static_cast<int>(c.get_int("spatial_merge_size", out.merge_size, 1, 16));
  c.get_int("in_channels", 3, 3, 3);  // published files also say in_chans, which the reference does not read
  if (out.width % (4 * static_cast<std::int64_t>(out.n_heads)) != 0)
    fail(ErrorCode::kInvalidFile, "{}: {} {} must be a multiple of 4 * num_heads, {}", c.path(), width_key,
         out.width, 4 * out.n_heads);
  if (const auto rope = c.find("rope_parameters")) {
    const std::string type = rope->get_string("rope_type", "axial");
    if (type != "axial" && type != "default")
      fail(ErrorCode::kUnsupported, "{}.rope_type: \"{}\" is not supported; supported: axial", rope->path(),
           type);
    out.rope_theta = read_rope_theta(*rope, "rope_theta", out.rope_theta);
  }
  return out;
}

}  // namespace triptych
