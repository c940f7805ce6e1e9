// What weights of 8 and of 4 bits share.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/quantized_rows.h"
#include "backend/cpu/runtime.h"
#include "base/function_ref.h"
#include "tensor/quant_codec.h"

namespace triptych::cpu {

/// Rows of the stack; sets n_in. Throws Error(kInvalidFile / kUnsupported) naming the tensor when shapes or
/// types do not fit.
std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in);

/// Row `index` of a quantized matrix in the stack.
struct QuantizedRow {
  const QuantizedMatrix* matrix = nullptr;  // null: the codes are not usable as they are
  std::int64_t row = 0;
};
/// The row whose codes become the weight's as they are: its matrix is plain and has this format (int8 per
/// channel: with scales of any type). Otherwise its values are quantized anew.
QuantizedRow stored_codes(const LinearSpec& spec, const QuantFormat& format, std::int64_t index);
/// Row `index` of the stack as float32, [n_in].
void load_row(const Runtime& runtime, const LinearSpec& spec, std::int64_t index, float* out);
/// Rows [first, first + n_rows) of the stack as the codec quantizes them. Throws Error(kInvalidFile) naming
/// the linear and the value.
QuantizedMatrix quantize_by_codec(const Runtime& runtime, const LinearSpec& spec, const QuantFormat& format,
                                  std::int64_t first, std::int64_t n_rows);
/// Rows [begin, end) of the stack were read for good; see release_rows of tensor/weight_table.h.
void release_loaded_rows(const LinearSpec& spec, std::int64_t begin, std::int64_t end) noexcept;
/// make(panel) for all panels of a weight on all threads, then its rows are released. The first exception is
/// thrown again.
void make_panels(Runtime& runtime, const LinearSpec& spec, std::int64_t n_out, std::int64_t n_in,
                 FunctionRef<void(std::int64_t panel)> make);

/// Weights of 8 and of 4 bits, which multiply int8 rows of x and give single columns as floats.
class QuantizedLinear : public CpuWeight {
 public:
  bool multiplies_int8() const noexcept override { return true; }
  /// Input channel k of output rows [first, first + n) as floats: out [n rounded up to 64]. `first` is a
  /// multiple of 64.
  virtual void load_column(std::int64_t k, std::int64_t first, std::int64_t n, float* out) const = 0;
};

/// Neighbouring panels of 8-bit weights, for products with rows of x.
struct S8Panels {
  const std::uint8_t* data;  // [n][panel_bytes]
  std::int64_t panel_bytes;
  std::int64_t n;
  std::int64_t k;
  bool in_tiles;               // their order, see kernels/gemm_s8
  const float* column_scales;  // [64 n]
  const float* bias;           // of the whole weight, or null
  std::int64_t first_column;   // of the whole weight
  std::int64_t n_columns;      // that exist; the last panel may be padded
  // Of a gated product: the panels of Wu in the same places, and N / 2. Else null.
  const std::uint8_t* up = nullptr;
  const float* up_column_scales = nullptr;
  std::int64_t n_half = 0;
};
/// Output rows [row_begin, row_end) of the panels' columns: tiles of the kernel's max_rows rows meet all
/// panels, then are finished. `products` holds max_rows * 64 n floats, max_rows * 128 n of a gated product.
void multiply_s8_panels(const Runtime& runtime, const kernels::GemmS8Kernels& gemm_s8, const LinearArgs& args,
                        const QuantizedRows& rows, const S8Panels& panels, std::int64_t row_begin,
                        std::int64_t row_end, float* products);

/// Panels of a product that are handed out: those of Wg stand for both halves of a gated one.
constexpr std::int64_t panels_to_hand_out(std::int64_t n_panels, const LinearArgs& args) noexcept {
  return args.gated ? n_panels / 2 : n_panels;
}

/// One piece of work: panels [panel_begin, panel_end) times rows [row_begin, row_end).
struct PanelItem {
  std::int64_t panel_begin, panel_end, row_begin, row_end;
};
/// Groups of panels that are multiplied together: a few, as long as their 8-bit weights stay in the
/// second-level cache, fewer when threads would have nothing to do. Rows are split, too, when there are few
/// groups; with panels that each piece makes anew, kernels of tiles only split them so that every thread has
/// a piece: for these a panel costs as much to make as to multiply with 85 rows.
PanelTiling plan_panel_tiling(const Runtime& runtime, const kernels::GemmS8Kernels& gemm_s8,
                              std::int64_t n_panels, std::int64_t panel_bytes, std::int64_t n_rows,
                              bool makes_panels = false);
/// Hands out all panels and rows in such pieces, with tiles configured for a kernel of tiles.
void for_panel_items(Runtime& runtime, std::int64_t n_panels, std::int64_t n_rows, const PanelTiling& tiling,
                     FunctionRef<void(const PanelItem& item, int thread)> body);

}  // namespace triptych::cpu
