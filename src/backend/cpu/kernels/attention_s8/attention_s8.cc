#include "backend/cpu/kernels/attention_s8/attention_s8.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const AttentionS8Kernels& attention_s8_kernels(Isa isa) {
  return first_supported<AttentionS8Kernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512Vnni, &kAttentionS8Avx512Vnni}, {Isa::kAvx2, &kAttentionS8Avx2},
#elif defined(__aarch64__)
    {Isa::kDotprod, &kAttentionS8Dotprod},
#endif
    {
      Isa::kScalar, &kAttentionS8Scalar
    }
  });
}

}  // namespace triptych::kernels
