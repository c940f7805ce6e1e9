// Positions of M-RoPE (Qwen2-VL, arXiv 2409.12191, section 2.1): a token has a temporal, a height and a width
// position. Text moves all three by one; the tokens of a picture or video span a box. Reference: transformers
// 5.24, modeling_qwen2_vl.py and modeling_qwen2_5_vl.py, get_rope_index. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace triptych {

/// A picture or video in a prompt: grid_t * grid_h * grid_w tokens from row first_row on, the width running
/// fastest. Grids count tokens, that is patches after merging.
struct MropeMedia {
  std::int64_t first_row = 0;
  int grid_t = 1, grid_h = 0, grid_w = 0;
  float temporal_step = 1.0F;  // between grid steps in time; position i is int(i * step), both in float32
};

struct MropePositions {
  std::vector<std::int32_t> positions;  // [3 * n_tokens]: temporal, height, width
  std::int32_t next_position = 0;       // of the token after the last: one more than the largest of all
};

/// Positions of a prompt of n_tokens in which `media` (ascending, not overlapping) lie. Text after a medium
/// goes on at its start plus max(grid_h, grid_w), as the reference counts since 5.x (before, a longer grid in
/// time counted too). Throws Error(kInvalidArgument) when a video's positions do not fit 31 bits.
MropePositions mrope_positions(std::int64_t n_tokens, std::span<const MropeMedia> media);

}  // namespace triptych
