// What weights of 8 and of 4 bits share.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/runtime.h"
#include "base/function_ref.h"

namespace triptych::cpu {

/// Rows of the stack; sets n_in. Throws Error(kInvalidFile / kUnsupported) naming the tensor when shapes or
/// types do not fit.
std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in);

/// Row `index` of the stack as float32, [n_in].
void load_row(const Runtime& runtime, const LinearSpec& spec, std::int64_t index, float* out);
/// Rows [begin, end) of the stack were read for good; see release_rows of tensor/weight_table.h.
void release_loaded_rows(const LinearSpec& spec, std::int64_t begin, std::int64_t end) noexcept;
/// make(panel) for all panels of a weight on all threads, then its rows are released. The first exception is
/// thrown again.
void make_panels(Runtime& runtime, const LinearSpec& spec, std::int64_t n_out, std::int64_t n_in,
                 FunctionRef<void(std::int64_t panel)> make);

/// Elements of x that stay floats: a channel that is far larger than the rest of its row would take all 127
/// levels (Dettmers et al., "LLM.int8()", 2022; there by columns and a fixed limit). At most kRowOutliers a
/// row, of at most kOutlierChannels channels a call.
struct Outliers {
  static constexpr int kRowOutliers = 4;
  static constexpr int kOutlierChannels = 64;
  /// Largest magnitude of a row, in units of the root mean square of the rest, that is still quantized with
  /// the others.
  static constexpr float kLimit = 16;

  struct Element {
    std::int32_t column;  // index in `columns`; -1: none from here on
    float x;
  };
  const Element* elements = nullptr;  // [M][kRowOutliers]; null: no row has any
  const float* columns = nullptr;     // [n][column_stride] of the weight, as floats
  std::int64_t column_stride = 0;
};

/// Rows of x as bytes, in the runtime's shared scratch until its next use.
struct QuantizedRows {
  const std::int8_t* q;      // [M][stride], zeros from K on
  std::int64_t stride;       // K rounded up to 8
  float* scales;             // [M]
  std::int32_t* sums;        // [M] of q
  std::int32_t* group_sums;  // [M][groups] of q, if they were asked for
  Outliers outliers;
};
/// Reads one column k of the weight as floats: out [N rounded up to 64].
using LoadColumn = FunctionRef<void(std::int64_t k, float* out)>;
/// The codes of `args`, with their sums.
QuantizedRows take_codes(Runtime& runtime, const LinearArgs& args, std::int64_t k);
/// Quantizes x [M, K] of `args` by rows (kernels/gemm_s8), or on args.x_quant. Sums by groups of
/// `group` elements (a multiple of 8, or K or more) are made unless it is zero. Columns are loaded for
/// outliers only, into the runtime's second scratch; `n_padded` is the length of one.
QuantizedRows quantize_rows(Runtime& runtime, const LinearArgs& args, std::int64_t k, std::int64_t n_padded,
                            LoadColumn load_column, std::int64_t group = 0);

/// products [n] of row `row` and the weight's rows from `first` on: what its outliers add.
void add_outliers(const QuantizedRows& rows, std::int64_t row, std::int64_t first, std::int64_t n,
                  float* products);

/// Neighbouring panels of 8-bit weights, for products with rows of x.
struct S8Panels {
  const std::uint8_t* data;  // [n][panel_bytes]
  std::int64_t panel_bytes;
  std::int64_t n;
  std::int64_t k;
  const float* column_scales;  // [64 n]
  const float* bias;           // of the whole weight, or null
  std::int64_t first_column;   // of the whole weight
  std::int64_t n_columns;      // that exist; the last panel may be padded
  // Of a gated product: the panels of Wu in the same places, and N / 2. Else null.
  const std::uint8_t* up = nullptr;
  const float* up_column_scales = nullptr;
  std::int64_t n_half = 0;
};
/// Output rows [row_begin, row_end) of the panels' columns: tiles of six rows meet all panels, then are
/// finished. `products` holds 6 * 64 n floats, 6 * 128 n of a gated product.
void multiply_s8_panels(const Runtime& runtime, const LinearArgs& args, const QuantizedRows& rows,
                        const S8Panels& panels, std::int64_t row_begin, std::int64_t row_end,
                        float* products);

/// Panels of a product that are handed out: those of Wg stand for both halves of a gated one.
constexpr std::int64_t panels_to_hand_out(std::int64_t n_panels, const LinearArgs& args) noexcept {
  return args.gated ? n_panels / 2 : n_panels;
}

/// One piece of work: panels [panel_begin, panel_end) times rows [row_begin, row_end).
struct PanelItem {
  std::int64_t panel_begin, panel_end, row_begin, row_end;
};
/// Groups of panels that are multiplied together: a few, as long as their 8-bit weights stay in the
/// second-level cache, fewer when threads would have nothing to do. Rows are cut, too, when there are few
/// groups.
PanelCut cut_panels(const Runtime& runtime, std::int64_t n_panels, std::int64_t panel_bytes,
                    std::int64_t n_rows);
/// Hands out all panels and rows in such pieces.
void for_panel_items(Runtime& runtime, std::int64_t n_panels, std::int64_t n_rows, const PanelCut& cut,
                     FunctionRef<void(const PanelItem& item, int thread)> body);

}  // namespace triptych::cpu
