// What depends on the kind of processor beyond its instruction sets: the same instruction is a gain on one
// and a loss on another (VDPBF16PS does twice the products of float32 on Zen 4, half of them on an Intel
// processor with AMX), and caches differ. Decided once, when a backend starts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"

namespace triptych {

/// Choices by the kind of processor.
struct CpuTuning {
  /// Products of bfloat16 are faster than those of float32, so that bf16_activations (CpuPolicy) gain.
  bool bf16_gains = false;
  /// 8-bit products of so many rows and more go to the kernels of tiles, where there are any. Changes no bit.
  std::int64_t tile_rows = 9;
  /// int4 weights are multiplied as stored up to here, beyond it made 8-bit first
  /// (linear_quantized_bench.cc).
  std::int64_t int4_streamed_rows = 12;
  /// Panels of weights that are multiplied together, bytes; and with tiles.
  std::int64_t panel_group_bytes = 512 * 1024;
  std::int64_t tile_group_bytes = 512 * 1024;
  /// The kernels of tiles are those over tiles in C++, for tests: hundreds of times slower.
  bool emulated_tiles = false;
};

/// What the choices are made from; zero: unknown, or the instruction set has no way to it.
struct TuningProbe {
  double fp32_flops_per_s = 0;
  double bf16_flops_per_s = 0;  // by the kernel that would multiply
  double int8_ops_per_s = 0;    // without tiles
  double tile_int8_ops_per_s = 0;
  std::size_t second_cache_bytes = 0;
};

/// The choices themselves, from a probe.
CpuTuning tuning_from(CpuFeatures features, const TuningProbe& probe) noexcept;
/// Of flags that may be used. Measured on this thread, in less than 30 ms of its time, once a process for
/// each set of flags. What is asked for with the same flags later is the same. Without `with_bf16` the
/// products of bfloat16 are not measured, and bf16_gains is false; nothing is measured then where there are
/// no tiles.
const CpuTuning& measured_tuning(CpuFeatures features, bool with_bf16 = true);
/// The probe alone: what measured_tuning decides by.
TuningProbe probe_for_tuning(CpuFeatures features, bool with_bf16 = true);

}  // namespace triptych
