// Which of a picture's tokens stay, by their scores or their rows. Arithmetic alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace triptych {

/// Indices of the k highest scores, ascending; of equal ones the first.
std::vector<std::int32_t> select_highest(std::span<const double> scores, std::int64_t k);

/// Indices of k rows of x [n, W] (float32 in host memory), ascending: those that stand out from the mean of
/// all rows and from each other. The set is a greedy choice of the largest det(L + s I), L the inner products
/// of the rows less their mean and s their mean square: the most probable set of a determinantal point
/// process (Chen, Zhang and Zhou 2018, "Fast greedy MAP inference for determinantal point process") whose
/// rows are taken as measured with noise, so that a second row about the same thing is worth something, too.
/// O(k n (k + W)).
std::vector<std::int32_t> select_diverse(const TensorView& x, std::int64_t k);

}  // namespace triptych
