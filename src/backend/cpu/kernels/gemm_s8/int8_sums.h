// The sums of gemm_s8.h in loops that compilers turn into vectors of whatever the file is compiled for.
#pragma once

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

namespace triptych::kernels {
namespace {

inline int32_t square_sum(const int8_t* q, ptrdiff_t n) {
  int32_t sum = 0;
  for (ptrdiff_t i = 0; i < n; ++i) sum += q[i] * q[i];
  return sum;
}

inline void int8_sums(const S8SumsArgs& t) {
  for (ptrdiff_t begin = 0; begin < t.k; begin += t.group) {
    const ptrdiff_t end = t.k - begin < t.group ? t.k : begin + t.group;
    int32_t sum = 0;
    for (ptrdiff_t i = begin; i < end; ++i) sum += t.q[i];
    t.group_sums[begin / t.group] = sum;
  }
}

}  // namespace
}  // namespace triptych::kernels
