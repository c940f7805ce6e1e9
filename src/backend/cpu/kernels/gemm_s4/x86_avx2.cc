#include <immintrin.h>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"

namespace triptych::kernels {
namespace {

float half_to_float(const uint8_t* at) {
  unsigned short bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return _cvtsh_ss(bits);
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/gemm_s4/gemm_s4_body.h"

namespace triptych::kernels {

extern const GemmS4Kernels kGemmS4Avx2 = {"avx2", s4_rows, s4_requantize};

}  // namespace triptych::kernels
