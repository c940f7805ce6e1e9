// The sums of gemm_s8.h in loops that compilers turn into vectors of whatever the file is compiled for.
#pragma once

#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"

namespace triptych::kernels {
namespace {

inline void code_sums(const S8SumsArgs& t) {
  int32_t squares = 0;
  for (ptrdiff_t i = 0; i < t.k; ++i) squares += t.q[i] * t.q[i];
  *t.square_sum = squares;
  if (t.group_sums == nullptr) return;
  for (ptrdiff_t begin = 0; begin < t.k; begin += t.group) {
    const ptrdiff_t end = t.k - begin < t.group ? t.k : begin + t.group;
    int32_t sum = 0;
    for (ptrdiff_t i = begin; i < end; ++i) sum += t.q[i];
    t.group_sums[begin / t.group] = sum;
  }
}

}  // namespace
}  // namespace triptych::kernels
