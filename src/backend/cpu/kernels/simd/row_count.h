// From a number of rows known when running to one known when compiling, so that sums stay in registers.
#pragma once

namespace triptych::kernels {
namespace {

template <int kN>
struct RowCount {
  static constexpr int value = kN;
};

/// body(RowCount<n>()) for n in 1 .. kMax; more counts as kMax, less as 1.
template <int kMax, typename Body>
inline void with_row_count(int n, Body body) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_row_count<kMax - 1>(n, body);
  }
  body(RowCount<kMax>());
}

}  // namespace
}  // namespace triptych::kernels
