// Types of stored weights and cached keys/values that kernels read. Plain C++ without the standard library:
// files compiled for one instruction set include it.
#pragma once

namespace triptych {

class CpuFeatures;  // base/cpu_features.h

/// Kernels compute in float32; these are the formats they load from and store to memory.
enum class ElementType : int { kF32, kF16, kBF16 };

constexpr unsigned long element_bytes(ElementType type) { return type == ElementType::kF32 ? 4UL : 2UL; }

}  // namespace triptych
