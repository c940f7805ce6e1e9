// The oracle.
#include <cstring>

#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "base/half.h"

namespace triptych::kernels {
namespace {

float half_to_float(const uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

}  // namespace
}  // namespace triptych::kernels

#include "backend/cpu/kernels/gemm_s4/gemm_s4_body.h"

namespace triptych::kernels {

extern const GemmS4Kernels kGemmS4Scalar = {"scalar", s4_rows, s4_requantize, kS4MaxRows};

}  // namespace triptych::kernels
