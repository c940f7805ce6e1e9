// From a number of rows known when running to one known when compiling, so that sums stay in registers.
#pragma once

namespace triptych::kernels {
namespace {

template <int kN>
struct RowCount {
  static constexpr int value = kN;
};

/// body(RowCount<n>()) for n in 1 .. 6; more counts as 6.
template <typename Body>
inline void with_row_count(int n, Body body) {
  switch (n) {
    case 1:
      return body(RowCount<1>());
    case 2:
      return body(RowCount<2>());
    case 3:
      return body(RowCount<3>());
    case 4:
      return body(RowCount<4>());
    case 5:
      return body(RowCount<5>());
    default:
      return body(RowCount<6>());
  }
}

}  // namespace
}  // namespace triptych::kernels
