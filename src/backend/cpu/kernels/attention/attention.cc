#include "backend/cpu/kernels/attention/attention.h"

#include "backend/cpu/kernels/attention/key_blocks.h"
#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

ptrdiff_t attention_scratch_floats(int head_dim) {
  const ptrdiff_t d = round_up(head_dim, 16);
  return d * (2 * kAttentionMaxRows + 4 * kKeyBlock + 16) + kKeyBlock * kPanelFloats;
}

const AttentionKernels& attention_kernels(Isa isa) {
  return first_supported<AttentionKernels>(isa, {
#if defined(__x86_64__)
    {Isa::kAvx512, &kAttentionAvx512}, {Isa::kAvx2, &kAttentionAvx2},
#elif defined(__aarch64__)
    {Isa::kNeon, &kAttentionNeon},
#endif
    {
      Isa::kScalar, &kAttentionScalar
    }
  });
}

}  // namespace triptych::kernels
