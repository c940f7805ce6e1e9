// Choice of an implementation: a list in order of preference, the first whose flags are all there wins.
#pragma once

#include <initializer_list>

#include "base/cpu_features.h"
#include "base/error.h"

namespace triptych::kernels {

// What the files of each suffix need: the flags that they are compiled with (cmake/TriptychLayer.cmake),
// since the compiler may use any of them anywhere.
inline constexpr CpuFeatures kNeedsNothing;
inline constexpr CpuFeatures kNeedsAvx2 = {CpuFeature::kAvx2, CpuFeature::kFma, CpuFeature::kF16c};
inline constexpr CpuFeatures kNeedsAvx512 = kNeedsAvx2 | CpuFeatures{CpuFeature::kAvx512Core};
inline constexpr CpuFeatures kNeedsAvx512Vnni = kNeedsAvx512 | CpuFeatures{CpuFeature::kAvx512Vnni};
inline constexpr CpuFeatures kNeedsAvx512Bf16 = kNeedsAvx512Vnni | CpuFeatures{CpuFeature::kAvx512Bf16};
inline constexpr CpuFeatures kNeedsAmxInt8 = kNeedsAvx512Vnni | CpuFeatures{CpuFeature::kAmxInt8};
inline constexpr CpuFeatures kNeedsAmxBf16 = kNeedsAvx512Bf16 | CpuFeatures{CpuFeature::kAmxBf16};
inline constexpr CpuFeatures kNeedsNeon = {CpuFeature::kNeon};
inline constexpr CpuFeatures kNeedsDotprod = {CpuFeature::kNeon, CpuFeature::kArmv82, CpuFeature::kDotprod};
inline constexpr CpuFeatures kNeedsI8mm = kNeedsDotprod | CpuFeatures{CpuFeature::kI8mm};

template <typename Kernels>
struct Candidate {
  CpuFeatures needs;
  const Kernels* kernels;
};

/// The last candidate must need nothing.
template <typename Kernels>
const Kernels& first_supported(CpuFeatures features, std::initializer_list<Candidate<Kernels>> best_first) {
  for (const Candidate<Kernels>& candidate : best_first)
    if (features.has_all(candidate.needs)) return *candidate.kernels;
  TRIPTYCH_CHECK(false, "no implementation");
  return *best_first.begin()->kernels;
}

}  // namespace triptych::kernels
