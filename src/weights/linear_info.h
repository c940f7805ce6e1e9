// What a linear is called and what it does in its model. Families state it where they bind the linear, so
// that nothing has to guess from names.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

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

/// Static quantization parameters of inputs.
using ActivationQuantMap = std::map<LinearId, ActivationQuant>;

}  // namespace triptych
