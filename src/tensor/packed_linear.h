// A matrix as a backend multiplies it, ready made: what `triptych convert` stores and a backend borrows from
// the mapped file. Which arrays a format has, and their bytes, is said in quant_format.h ("Panels").
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/activation_quant.h"
#include "tensor/quant_format.h"
#include "tensor/tensor.h"

namespace triptych {

struct PackedArray {
  std::string name;                   // "panels", "column_scales", ...
  TensorView view;                    // contiguous
  std::shared_ptr<const void> owner;  // keeps the memory of `view` alive
};

/// Panels of 64 output channels, as in docs/format.md.
inline constexpr std::string_view kPanels64Layout = "panels64";

struct PackedLinear {
  QuantFormat format;
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  std::vector<PackedArray> arrays;
  ActivationQuant activation_quant = {};      // by calibration; no step: none
  std::string_view layout = kPanels64Layout;  // how `arrays` are laid out; a literal

  /// nullptr when absent.
  const PackedArray* find(std::string_view name) const noexcept {
    for (const PackedArray& array : arrays)
      if (array.name == name) return &array;
    return nullptr;
  }
};

}  // namespace triptych
