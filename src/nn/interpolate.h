// Interpolation on grids: of learned position tables when a model is loaded, and of rows of features in a
// step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/exec_context.h"
#include "tensor/tensor.h"

namespace triptych {

/// Rows of a square grid [from * from, D] to [to * to, D] as torch.nn.functional.interpolate(mode="bicubic",
/// align_corners=False) does: A = -0.75, half-pixel centres, no antialiasing, taps clamped to the edge.
/// float32; the same table when from == to.
Tensor interpolate_bicubic_grid(const Tensor& table, int from, int to);

/// Between which two of `from` places the place `at` of `to` lies, as torch.nn.functional.interpolate(mode=
/// "bilinear", align_corners=False) has it: half-pixel centres, no antialiasing, clamped to the edge.
struct BilinearTap {
  std::int64_t lower = 0, upper = 0;
  float upper_weight = 0;  // the lower one has the rest
};
BilinearTap bilinear_tap(std::int64_t at, std::int64_t from, std::int64_t to);

/// Rows that are rows of a table, or lie between four of them. Places and weights are in the arena.
class RowMixture {
 public:
  /// Of n rows, which add() gives one after another.
  RowMixture(Arena& arena, std::int64_t n);
  /// Row `row` of the table as it is.
  void add(std::int64_t row) { add({row, row, row, row}, {1, 0, 0, 0}); }
  /// The point of a grid whose row (y, x) of the table is place(y, x).
  template <typename Place>
  void add(const BilinearTap& y, const BilinearTap& x, Place&& place) {
    const float lower_y = 1 - y.upper_weight, lower_x = 1 - x.upper_weight;
    add({place(y.lower, x.lower), place(y.lower, x.upper), place(y.upper, x.lower), place(y.upper, x.upper)},
        {lower_y * lower_x, lower_y * x.upper_weight, y.upper_weight * lower_x,
         y.upper_weight * x.upper_weight});
    is_mixed_ = true;
  }
  /// out [n, D] from table [*, D].
  void write(ExecContext& cx, const TensorView& table, TensorView out) const;

 private:
  void add(const std::array<std::int64_t, 4>& rows, const std::array<float, 4>& weights);

  std::array<std::span<std::int32_t>, 4> rows_;
  std::array<std::span<float>, 4> weights_;
  std::size_t n_ = 0;
  bool is_mixed_ = false;
};

}  // namespace triptych
