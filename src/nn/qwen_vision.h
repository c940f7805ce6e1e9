// What the towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL share: frames of patches in merge-block order, 2-D
// rotary angles, attention segments; window order and interpolated positions, of one of them each. Patches of
// a frame come in blocks of merge x merge (the four that the merger joins stand together), blocks and the
// patches inside a block row-major. Reference: transformers 5.24, vision_utils.py, modeling_qwen2_vl.py
// (Qwen2VLVisionRotaryEmbedding).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"
#include "nn/rope.h"

namespace triptych {

/// One frame of a picture or video; both sides of its grid are multiples of the merge size.
struct VisionFrame {
  TensorView patches;  // [grid_h * grid_w, values of a patch]
  int grid_h = 0, grid_w = 0;
  std::int64_t n_patches() const noexcept { return std::int64_t{grid_h} * grid_w; }
};

/// How many of the leading frames have at most max_patches together; at least one. Frames do not see each
/// other, so a tower may take them in groups and bound its memory.
std::size_t leading_frames(std::span<const VisionFrame> frames, std::int64_t max_patches);

/// Frequencies of one axis: theta^(-2i / (Dh/2)), i < Dh/4, in float32. head_dim is a multiple of 4.
std::vector<float> axial_inverse_frequencies(int head_dim, double theta);

/// cos and sin [P, Dh/2] of all patches: the first half of the columns turns by the patch's row, the second
/// by its column.
RopeAngles axial_rope_angles(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                             std::span<const float> inverse_frequencies);

/// Learned positions of the patches [P, Dv] from a square table [side * side, Dv] of float32 in host memory:
/// bilinear between its rows, the corners of every frame at the table's (the reference: align_corners). A
/// frame of one row or column lies at the table's first.
TensorView interpolated_positions(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                                  const Tensor& table);

/// Offsets of the frames among the patches [n + 1]: attention stays within a frame. In the arena.
std::span<const std::int32_t> frame_segments(ExecContext& cx, std::span<const VisionFrame> frames);

/// The order in which Qwen2.5-VL's tower sees merge blocks, so that a window is one stretch of rows.
struct WindowOrder {
  std::span<const std::int32_t> blocks;    // [P / merge^2]: place i holds block blocks[i]
  std::span<const std::int32_t> segments;  // offsets of the windows among the patches, empty windows left out
};

/// Windows of window_blocks x window_blocks blocks, row-major from the top left of each frame; those at the
/// right and lower edge may be smaller. In the arena.
WindowOrder window_order(ExecContext& cx, std::span<const VisionFrame> frames, int merge_size,
                         int window_blocks);

/// Self-attention of the tower: qkv [3 Dv, Dv] holds the queries of all heads, then the keys, then the
/// values. x [P, Dv] -> [P, Dv], before the output projection. Rows see their segment only.
struct VisionAttention {
  const LinearWeight& qkv;
  int n_heads;
  const RopeAngles& rope;
  std::span<const std::int32_t> segments;

  TensorView operator()(ExecContext& cx, const LinearInput& x) const;
};

/// Configuration fields that both towers have, checked.
struct QwenVisionConfig {
  int depth = 32;
  std::int64_t width = 0;  // Dv
  int n_heads = 16;
  int patch_size_px = 14;
  int temporal_patch_size = 2;
  int merge_size = 2;
  double rope_theta = 10000.0;

  int head_dim() const noexcept { return static_cast<int>(width / n_heads); }
  std::int64_t patch_values() const noexcept {
    return std::int64_t{3} * temporal_patch_size * patch_size_px * patch_size_px;
  }
  std::int64_t merged_width() const noexcept { return width * merge_size * merge_size; }
  /// `width_key` names the tower's width: "embed_dim" in Qwen2-VL, "hidden_size" in the later ones. What the
  /// file leaves out is as in `defaults`.
  static QwenVisionConfig parse(const JsonView& vision_config, std::string_view width_key,
                                const QwenVisionConfig& defaults);
};

}  // namespace triptych
