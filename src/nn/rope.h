// Rotary position embedding: angles from positions, with the scalings published checkpoints use. Frequencies
// follow the reference's arithmetic in float32 (transformers 5.24, modeling_rope_utils.py):
//   default  inv[d] = theta^(-2d/R)
//   linear   inv / factor                                             (position interpolation, Chen et al.
//   2023) dynamic  theta' = theta * (factor * L / L0 - (factor - 1))^(R/(R-2)) once L > L0   (dynamic NTK)
//   yarn     a ramp between inv and inv / factor over the dimensions  (Peng et al. 2023), cos and sin times
//   an attention factor llama3   inv / factor for long wavelengths, a smooth step between (Llama 3.1) mrope
//   three position axes share the frequencies by sections    (Qwen2-VL, section 2.1), in blocks or,
//   interleaved, in turns: height has frequencies 1, 4, 7, ..., width 2, 5, 8, ..., as many as its section
//   says, time all others (Qwen3-VL)
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/exec_context.h"
#include "base/json.h"

namespace triptych {

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kDynamic, kYarn, kLlama3 };
  int rotary_dim = 0;  // R, even
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  std::int64_t original_max_positions = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;              // llama3
  double beta_fast = 32.0, beta_slow = 1.0, attention_factor = 1.0;  // yarn
  bool truncate = true;                                              // yarn: whole dimensions bound the ramp
  std::vector<int> mrope_section;  // frequencies per axis, sum R/2; empty: one axis
  bool mrope_interleaved = false;  // the axes' frequencies take turns, else they follow each other in blocks

  /// Reads rope_theta, rope_scaling ("type" or "rope_type"), partial_rotary_factor, or the newer
  /// rope_parameters object of a text configuration. An unknown scaling throws Error(kUnsupported) naming the
  /// field.
  static RopeConfig parse(const JsonView& text_config, int head_dim, double default_theta,
                          std::int64_t max_position_embeddings, double default_partial_rotary_factor = 1.0);

  /// Sequences up to this length have the same angles at the same positions.
  std::int64_t max_shareable_tokens() const noexcept {
    return scaling == Scaling::kDynamic ? original_max_positions : std::numeric_limits<std::int64_t>::max();
  }
};

struct RopeAngles {
  TensorView cos, sin;  // [T, R/2] float32
};

class Rope {
 public:
  Rope() = default;
  explicit Rope(RopeConfig config);
  const RopeConfig& config() const noexcept { return config_; }

  /// Frequencies for a sequence of `n_positions` (only dynamic scaling looks at it). out [R/2].
  void inverse_frequencies(std::int64_t n_positions, std::span<float> out) const;
  /// Angles of a batch. positions [n_axes * T], axis-major, n_axes 1 or the number of sections; lengths [T].
  /// A dynamic base is a row's own: it follows the longer of the prompt (one base for a prompt prefilled in
  /// pieces) and the tokens up to the row. In a recorded step angles are computed each time it runs, from
  /// what the spans hold then.
  RopeAngles angles(ExecContext& cx, std::span<const std::int32_t> positions,
                    std::span<const RowLengths> lengths) const;

 private:
  RopeConfig config_;
  std::vector<float> inv_freq_;
  std::vector<int> axis_;  // which position axis turns which frequency
};

}  // namespace triptych
