#include "backend/cpu/linear_quantized.h"

#include <algorithm>

#include "base/error.h"

namespace triptych::cpu {

void load_row(const LinearSpec& spec, std::int64_t index, float* out) {
  for (const WeightEntry& part : spec.parts) {
    if (index < part.view.dim(0)) {
      const TensorView row = part.view.row(index);
      kernels::row_kernels(Isa::kScalar)
          .widen(element_type_of(part.view.dtype(), part.name), row.numel(), row.cdata(), out);
      return;
    }
    index -= part.view.dim(0);
  }
}

std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in) {
  if (spec.parts.empty()) fail(ErrorCode::kInvalidFile, "{}: a linear without a matrix", spec.name);
  std::int64_t n_out = 0;
  for (const WeightEntry& part : spec.parts) {
    const TensorView& view = part.view;
    if (view.rank() != 2 || view.data() == nullptr || view.dim(0) < 1 || view.dim(1) < 1)
      fail(ErrorCode::kInvalidFile, "{}: expected a matrix [N, K], got {}", part.name,
           to_string(view.shape()));
    element_type_of(view.dtype(), part.name);
    if (n_out > 0 && view.dim(1) != n_in)
      fail(ErrorCode::kInvalidFile, "{}: expected [N, {}] beside the other matrices, got {}", part.name, n_in,
           to_string(view.shape()));
    n_in = view.dim(1);
    n_out += view.dim(0);
  }
  if (n_in > kernels::kS8MaxK)
    fail(ErrorCode::kUnsupported, "{}: {} inputs; 8-bit products take up to {}", spec.name, n_in,
         kernels::kS8MaxK);
  return n_out;
}

Division divide_panels(const Runtime& runtime, std::int64_t n_panels, std::int64_t most,
                       std::int64_t n_rows) {
  Division out{most, 0, 1};
  const std::int64_t wanted = runtime.n_threads() == 1 ? 1 : std::int64_t{3} * runtime.n_threads();
  while (out.group > 1 && ceil_div(n_panels, out.group) < wanted) --out.group;
  out.n_groups = ceil_div(n_panels, out.group);
  // Few panels: rows are cut, too.
  const std::int64_t most_splits = std::max<std::int64_t>(1, n_rows / (4 * kernels::kS8MaxRows));
  out.n_splits = std::clamp<std::int64_t>(ceil_div(wanted, out.n_groups), 1, most_splits);
  return out;
}

}  // namespace triptych::cpu
