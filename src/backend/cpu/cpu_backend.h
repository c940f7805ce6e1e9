// The backend for processors: float32 activations, weights read in place as float32, float16 or bfloat16,
// float32 accumulation. Results are the same bits for any number of threads: work is divided over outputs
// only, never over a sum.
//
// A linear with up to 24 rows streams the weight (kernels/gemv), one with more multiplies in tiles
// (kernels/gemm); the two round differently, within each the bits of a row do not depend on the other rows.
// The same holds for attention with up to 8 query rows per key/value head and more (kernels/attention).
//
// One operation runs at a time; calls from several threads wait for each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/cpu_features.h"

namespace triptych {

struct CpuBackendOptions {
  int n_threads = 0;               // < 1: usable_cpus()
  bool pin = false;                // bind worker threads to processors
  std::optional<CpuFeatures> isa;  // active_features() when empty; must be among those of the machine
  // int4: products of many rows use the groups' scales, not 8-bit weights made of them
  bool exact_groups = false;
  // products of many rows with bfloat16 weights round x to bfloat16, where the instruction set gains by it
  bool bf16_activations = false;
  // attention over plain tensors (towers) in 8-bit integers, where the instruction set gains by it
  bool int8_attention = false;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

/// Reads what prepare_linear does not of a stored linear: the scales that int4 keeps inside its panels, all
/// over the file. Throws Error(kInvalidFile) naming linear, channel and group of one that is not finite. Any
/// thread.
void check_packed_scales(const std::string& name, const PackedLinear& packed);

}  // namespace triptych
