// What a linear is called and what it does in its model. Families state it where they bind the linear, so
// that nothing has to guess from names.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/activation_quant.h"

namespace triptych {

/// Names a linear, the same in every program that reads the checkpoint: triptych.json has it as the key.
struct LinearId {
  std::string name;       // of its first matrix, as published
  std::string part = {};  // "": all of it; "[begin:end]": these rows of it; "^T": it is stored transposed

  /// E.g. "visual.blocks.0.attn.qkv.weight", "attn_pool.attn.in_proj_weight[0:4096]".
  std::string text() const { return name + part; }
  auto operator<=>(const LinearId&) const = default;
};

enum class LinearRole : std::uint8_t {
  kBody,
  kPixelInput,  // multiplies pixels: patch embeddings, projections of raw patches
  kHead,        // gives the logits; its matrix may be the token embedding's
};

struct LinearTraits {
  LinearRole role = LinearRole::kBody;
  /// Inputs are 8-bit integers times one constant by nature, so that int8 products lose nothing of them.
  bool int8_inputs = false;
};

/// All that a choice about a linear may depend on.
struct LinearInfo {
  LinearId id;
  LinearTraits traits;
  std::string_view model_part;  // "vision", "projector", "language"
  std::int64_t n_out = 0, n_in = 0;
};

/// Channels between parts of a model whose scale is free: what writes channel c may be divided by any s[c] >
/// 0 if what reads it is multiplied by s[c], and the model computes the same. Families state it where they
/// bind both. (Cross-layer equalization, Nagel et al. 2019, section 4.1; smoothing, Xiao et al. 2023.)
struct EqualizationGroup {
  /// Rows [first_row, first_row + n_channels) of a tensor's first axis: a norm's weight or bias, rows of a
  /// matrix, its bias.
  struct Writer {
    std::string name;
    std::int64_t first_row = 0;
  };
  std::vector<Writer> writers;
  std::vector<std::string> readers;  // matrices [N, K], K = n_channels * repeat
  std::int64_t n_channels = 0;
  // Runs of this many channels are read `repeat` times one after another: a head of values serves several
  // heads of queries. 0: all channels are one run.
  std::int64_t run = 0;
  std::int64_t repeat = 1;

  /// The channel that column k of a reader reads.
  std::int64_t channel_of(std::int64_t k) const noexcept {
    const std::int64_t width = run > 0 ? run : n_channels;
    return k / (width * repeat) * width + k % width;
  }
};

/// Static quantization parameters of inputs.
using ActivationQuantMap = std::map<LinearId, ActivationQuant>;

}  // namespace triptych
