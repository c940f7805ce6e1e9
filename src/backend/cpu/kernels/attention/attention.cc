#include "backend/cpu/kernels/attention/attention.h"

#include "backend/cpu/kernels/attention/key_blocks.h"
#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

ptrdiff_t attention_scratch_floats(int head_dim) {
  const ptrdiff_t d = round_up(head_dim, 16);
  return d * (2 * kAttentionMaxRows + 4 * kKeyBlock + 16) + kKeyBlock * kPanelFloats;
}

const AttentionKernels& attention_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<AttentionKernels>(
      features,
      {{kNeedsAvx512, &kAttentionAvx512}, {kNeedsAvx2, &kAttentionAvx2}, {kNeedsNothing, &kAttentionScalar}});
#elif defined(__aarch64__)
  return first_supported<AttentionKernels>(
      features, {{kNeedsNeon, &kAttentionNeon}, {kNeedsNothing, &kAttentionScalar}});
#else
  return first_supported<AttentionKernels>(features, {{kNeedsNothing, &kAttentionScalar}});
#endif
}

}  // namespace triptych::kernels
