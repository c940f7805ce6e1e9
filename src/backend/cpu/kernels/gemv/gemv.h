// Products of a matrix with few vectors: y[m][n] = sum over k of x[m][k] * w[n][k], the matrix read once, as
// a stream. Lane j of a vector sums the products of k = j modulo the vector's length in order; the lanes are
// added at the end as a fixed tree. So the bits of y[m][n] do not depend on how many vectors or rows one call
// takes.
#pragma once

#include <stddef.h>

#include "backend/cpu/kernels/element_type.h"

namespace triptych::kernels {

struct GemvArgs {
  const void* w;       // first row, any alignment
  ptrdiff_t w_stride;  // elements between rows
  ElementType type;
  int n_rows;  // of w
  ptrdiff_t k;
  // The vectors, so that a step reads one stream: [ceil(k / lanes)][n_vectors][lanes], x[m][i] at
  // (i / lanes * n_vectors + m) * lanes + i % lanes, zero from k on. A single vector is its own packed form
  // when lanes divide k.
  const float* x;
  int n_vectors;  // 1 .. max_vectors
  float* y;       // y[m * y_stride + n]
  ptrdiff_t y_stride;
};

struct GemvKernels {
  const char* name;
  int lanes;
  int max_vectors;
  void (*gemv)(const GemvArgs& args);
};

const GemvKernels& gemv_kernels(Isa isa);

extern const GemvKernels kGemvScalar;
extern const GemvKernels kGemvAvx2;
extern const GemvKernels kGemvAvx512;

}  // namespace triptych::kernels
