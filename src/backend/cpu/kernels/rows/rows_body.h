// The vector implementation of rows.h; a *_avx*.cc file includes the vector header first.
#pragma once

#include "backend/cpu/kernels/rows/rows.h"

namespace triptych::kernels {
namespace {

template <ElementType T>
TRIPTYCH_INLINE void widen_from(ptrdiff_t n, const void* x, float* y) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore(y + i, vload_as<T>(x, i));
  if (i < n) vstore_n(y + i, vload_as_n<T>(x, i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

template <ElementType T>
TRIPTYCH_INLINE void narrow_to(ptrdiff_t n, const float* x, void* y) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore_as<T>(y, i, vload(x + i));
  if (i < n) vstore_as_n<T>(y, i, vload_n(x + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}

void widen(ElementType type, ptrdiff_t n, const void* x, float* y) {
  switch (type) {
    case ElementType::kF32:
      return widen_from<ElementType::kF32>(n, x, y);
    case ElementType::kF16:
      return widen_from<ElementType::kF16>(n, x, y);
    case ElementType::kBF16:
      return widen_from<ElementType::kBF16>(n, x, y);
  }
}

void narrow(ElementType type, ptrdiff_t n, const float* x, void* y) {
  switch (type) {
    case ElementType::kF32:
      return narrow_to<ElementType::kF32>(n, x, y);
    case ElementType::kF16:
      return narrow_to<ElementType::kF16>(n, x, y);
    case ElementType::kBF16:
      return narrow_to<ElementType::kBF16>(n, x, y);
  }
}

}  // namespace
}  // namespace triptych::kernels
