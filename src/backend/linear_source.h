// Where the values of a linear come from: one source for each of the matrices that are stacked in it. Readers
// of checkpoint formats produce these, and a backend prepares from them what it multiplies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/packed_linear.h"
#include "tensor/quant_codec.h"
#include "tensor/quant_format.h"
#include "tensor/weight_table.h"

namespace triptych {

/// A quantized matrix [N, K], arrays as in quant_format.h. Without the optional parts
///   w[n, k] = value of code[n, k], with the scale and the zero point of group k / group_size.
/// With them, where j runs over stored columns:
///   w[n, permutation[j]] = input_scales[permutation[j]] * value of code[n, j] in group group_index[j].
struct QuantizedSource {
  std::string name;                               // for messages
  std::shared_ptr<const QuantizedMatrix> matrix;  // its arrays may lie in a mapped file (Buffer::wrap)
  std::vector<std::int32_t> group_index = {};     // [K], empty: j / group_size (GPTQ's g_idx)
  std::vector<std::int32_t> permutation = {};     // [K], empty: j
  std::vector<float> input_scales = {};  // [K], empty: 1 (AWQ, SmoothQuant: scales not folded into norms)
  std::string file = {};                 // where it came from, for messages
  bool is_mapped = false;                // the arrays lie in a private mapping of a file

  /// Codes, scales and zero points alone say all.
  bool is_plain() const noexcept {
    return group_index.empty() && permutation.empty() && input_scales.empty();
  }
  /// Throws Error(kInvalidFile) naming the matrix when sizes do not fit, a group does not exist, the
  /// permutation is none, or an input scale is not finite. Scales are not read.
  void check() const;
  /// Row `n` as float32, out [K]: exactly the codec's values (QuantizedMatrix::value), times the input scale.
  void load_row(std::int64_t n, float* out) const;
};

/// The matrix [N, K] itself, its codes, or a whole linear as a backend multiplies it (PackedLinear::layout).
using LinearSource = std::variant<WeightEntry, QuantizedSource, PackedLinear>;

/// One matrix of a stack, with its bias.
struct LinearPart {
  LinearSource source;
  WeightEntry bias = {};  // [N]; an empty view: none. A packed linear holds its own

  const std::string& name() const noexcept;
  const WeightEntry* dense() const noexcept { return std::get_if<WeightEntry>(&source); }
  const QuantizedSource* quantized() const noexcept { return std::get_if<QuantizedSource>(&source); }
  /// The shape of dense and quantized matrices. Dense: only of a view of rank 2.
  std::int64_t n_out() const;
  std::int64_t n_in() const;
  /// Whether its bytes lie in a mapping of a file.
  bool is_mapped() const noexcept;
};

/// Matrices stacked along N that are used together (q, k, v; gate, up).
struct LinearSpec {
  std::string name;  // for messages
  std::vector<LinearPart> parts;
  std::optional<QuantFormat> format = {};  // quantize to this while loading; empty: as stored
  ActivationQuant activation_quant = {};   // static, of inputs: int8 per channel only, others do not look

  void add(LinearSource source, WeightEntry bias = {}) {
    parts.push_back({std::move(source), std::move(bias)});
  }
  /// The whole linear when it is stored packed, else null.
  const PackedLinear* packed() const noexcept {
    return parts.size() == 1 ? std::get_if<PackedLinear>(&parts.front().source) : nullptr;
  }
  /// What the weight will hold: the packed linear's format, `format` if given, or that of the quantized
  /// matrices. Empty: floats, as they are stored. Throws Error(kUnsupported) naming the matrix for a stack of
  /// several formats, or of packed linears.
  std::optional<QuantFormat> target_format() const;
};

}  // namespace triptych
