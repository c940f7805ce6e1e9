// The oracle of rows.h.
#include "backend/cpu/kernels/rows/rows.h"
#include "backend/cpu/kernels/scalar_load.h"

namespace triptych::kernels {
namespace {

void widen(ElementType type, std::ptrdiff_t n, const void* x, float* y) {
  for (std::ptrdiff_t i = 0; i < n; ++i) y[i] = load_element(x, type, i);
}

void narrow(ElementType type, std::ptrdiff_t n, const float* x, void* y) {
  for (std::ptrdiff_t i = 0; i < n; ++i) store_element(y, type, i, x[i]);
}

}  // namespace

const RowKernels kRowScalar = {"scalar", widen, narrow};

}  // namespace triptych::kernels
