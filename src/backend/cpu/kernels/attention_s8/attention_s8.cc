#include "backend/cpu/kernels/attention_s8/attention_s8.h"

#include "backend/cpu/kernels/select.h"

namespace triptych::kernels {

const AttentionS8Kernels& attention_s8_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  return first_supported<AttentionS8Kernels>(features, {{kNeedsAvx512Vnni, &kAttentionS8Avx512Vnni},
                                                        {kNeedsAvx2, &kAttentionS8Avx2},
                                                        {kNeedsNothing, &kAttentionS8Scalar}});
#elif defined(__aarch64__)
  return first_supported<AttentionS8Kernels>(
      features, {{kNeedsDotprod, &kAttentionS8Dotprod}, {kNeedsNothing, &kAttentionS8Scalar}});
#else
  return first_supported<AttentionS8Kernels>(features, {{kNeedsNothing, &kAttentionS8Scalar}});
#endif
}

const AttentionS8TileKernels* attention_s8_tile_kernels(CpuFeatures features) {
#if defined(__x86_64__)
  if (features.has_all(kNeedsAmxInt8)) return &kAttentionS8AmxInt8;
#endif
  static_cast<void>(features);
  return nullptr;
}

}  // namespace triptych::kernels
