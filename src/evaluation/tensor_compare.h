// How far two tensors are apart, and whether one is the other in another layout.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace triptych {

struct Difference {
  double max_abs = 0;    // largest |ours - reference|
  double largest = 0;    // largest |reference|
  std::int64_t at = -1;  // flat index of max_abs in the reference
  std::int64_t n_elements = 0;
  std::string problem;  // "shape [..] against [..]", "3 values are not finite"; empty when comparable

  /// max_abs relative to the largest magnitude of the reference (its absolute value where that is all zeros).
  double relative() const noexcept { return largest > 0 ? max_abs / largest : max_abs; }
  bool within(double tolerance) const noexcept { return problem.empty() && relative() <= tolerance; }
  /// Takes the worse of both.
  void merge(const Difference& other);
};

/// Compares float32 tensors. Layouts that count as equal: the same elements in the same order under any shape
/// whose last dimension agrees; and a reference [n, C, h, w] (a convolution's output) against our rows [n h
/// w, C]. Both must be dense.
Difference compare_tensors(const TensorView& ours, const TensorView& reference);

}  // namespace triptych
