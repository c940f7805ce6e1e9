// Products of a matrix with few vectors: y[m][n] = sum over k of x[m][k] * w[n][k], the matrix read once, as
// a stream. Lane j of a vector sums the products of k = j modulo the vector's length in order; the lanes are
// added at the end as a fixed tree. So the bits of y[m][n] do not depend on how many vectors or rows one call
// takes, nor on how k is cut into calls.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

/// Where element i of vector m lies, so that a step of the kernel reads one stream: groups of 2 * lanes
/// elements, in a group two halves, in a half all vectors. The second half are the later elements of the
/// group; for bf16 the odd ones, because a 32-bit word of the matrix then widens to two elements without a
/// shuffle.
constexpr ptrdiff_t gemv_x_index(ElementType type, int lanes, int n_vectors, ptrdiff_t m, ptrdiff_t i) {
  const ptrdiff_t in_group = i % (2 * lanes);
  const bool pairs = type == ElementType::kBF16;
  const ptrdiff_t half = pairs ? in_group % 2 : in_group / lanes;
  const ptrdiff_t lane = pairs ? in_group / 2 : in_group % lanes;
  return ((i / (2 * lanes) * 2 + half) * n_vectors + m) * lanes + lane;
}
constexpr ptrdiff_t gemv_x_floats(int lanes, int n_vectors, ptrdiff_t k) {
  return (k + 2 * lanes - 1) / (2 * lanes) * 2 * lanes * n_vectors;
}

struct GemvArgs {
  const void* w;       // first row, any alignment
  ptrdiff_t w_stride;  // elements between rows
  ElementType type;
  int n_rows;  // of w
  ptrdiff_t k;
  const float* x;  // gemv_x_floats(...) floats: x[m][i] at gemv_x_index(...), zeros from k on
  int n_vectors;   // 1 .. max_vectors
  float* y;        // y[m * y_stride + n]; written by the last call
  ptrdiff_t y_stride;
  // A long k may be cut: each call takes the next elements, a multiple of 2 * lanes of them but in the last,
  // and the lanes' sums are kept in between.
  float* sums = nullptr;  // [n_rows][n_vectors][lanes]
  bool is_first = true;
  bool is_last = true;
};

struct GemvKernels {
  const char* name;
  int lanes;
  int max_vectors;
  void (*gemv)(const GemvArgs& args);
};

const GemvKernels& gemv_kernels(CpuFeatures features);

extern const GemvKernels kGemvScalar;
extern const GemvKernels kGemvAvx2;
extern const GemvKernels kGemvAvx512;
extern const GemvKernels kGemvNeon;

}  // namespace triptych::kernels
