// The backend for processors: float32 activations, weights read in place as float32, float16 or bfloat16,
// float32 accumulation. Results are the same bits for any number of threads: work is divided over outputs
// only, never over a sum.
//
// A linear with few rows streams the weight (kernels/gemv), one with more multiplies in tiles (kernels/gemm);
// the two round differently, within each the bits of a row do not depend on the other rows. The same holds
// for attention with few query rows per key/value head and with more (kernels/attention). CpuPolicy says how
// many are few, and with batch_invariant takes the first way for any number.
//
// One operation runs at a time; calls from several threads wait for each other.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/policy.h"
#include "base/cpu_features.h"

namespace triptych {

struct CpuBackendOptions {
  int n_threads = 0;                     // < 1: usable_cpus()
  bool pin = false;                      // bind worker threads to processors
  std::optional<CpuFeatures> isa;        // active_features() when empty; must be among those of the machine
  CpuPolicy policy = {};                 // what chooses algorithms
  std::optional<CpuTuning> tuning = {};  // measured when empty
};

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

/// Reads what prepare_linear does not of a stored linear: the scales that int4 keeps inside its panels, all
/// over the file. Throws Error(kInvalidFile) naming linear, channel and group of one that is not finite. Any
/// thread.
void check_packed_scales(const std::string& name, const PackedLinear& packed);

}  // namespace triptych
