// What the operations of the CPU backend share: threads, the kernels of the instruction sets in use, scratch
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/attention_s8/attention_s8.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/gemm_s4/gemm_s4.h"
#include "backend/cpu/kernels/gemm_s8/gemm_s8.h"
#include "backend/cpu/kernels/gemv/gemv.h"
#include "backend/cpu/kernels/kv_rows/kv_rows.h"
#include "backend/cpu/kernels/norm/norm.h"
#include "backend/cpu/kernels/pointwise/pointwise.h"
#include "backend/cpu/kernels/quantize_weight/quantize_weight.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "backend/cpu/policy.h"
#include "backend/cpu/tuning.h"
#include "backend/op_args.h"
#include "base/cpu_features.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace triptych::cpu {

/// Memory that only grows; a steady step takes none.
class ScratchBuffer {
 public:
  /// At least n floats, 64-byte aligned, not initialised. Moves: earlier pointers become invalid.
  float* reserve(std::size_t n_floats);

 private:
  Buffer buffer_;
};

/// Memory for weights, which stay: taken in large pieces, so that small matrices lie in huge pages,
/// too, and the last page of each serves the next.
/// Thread-safe.
class WeightMemory {
 public:
  /// Zeroed, 64-byte aligned; lives as long as its owner(). Throws Error(kOutOfMemory).
  Buffer take(std::size_t size_bytes);

 private:
  std::mutex mutex_;
  Buffer piece_;
  std::size_t used_bytes_ = 0;
};

/// How a loop is divided; depends on its shape only.
struct LoopPlan {
  std::int64_t n = 0;
  std::int64_t grain = 0;  // smallest piece; 0: all on the calling thread
};

class Runtime {
 public:
  /// Without a tuning it is measured.
  Runtime(int n_threads, bool pin, CpuFeatures features, const CpuPolicy& policy = {},
          const std::optional<CpuTuning>& tuning = std::nullopt);

  const CpuFeatures features;
  const CpuPolicy policy;
  const CpuTuning tuning;
  const kernels::GemmKernels& gemm;
  const kernels::GemmKernels* const gemm_bf16;  // null: none
  const kernels::GemmS8Kernels& gemm_s8;
  const kernels::GemmS8Kernels* const gemm_s8_tiles;  // null: none
  const kernels::GemmS4Kernels& gemm_s4;
  const kernels::GemvKernels& gemv;
  const kernels::AttentionKernels& attention;
  const kernels::AttentionS8Kernels& attention_s8;
  const kernels::AttentionS8TileKernels* const attention_s8_tiles;  // null: none
  const kernels::KvRowKernels& kv_rows;
  const kernels::NormKernels& norm;
  const kernels::PointwiseKernels& pointwise;
  const kernels::RowKernels& rows;
  const kernels::QuantizeWeightKernels& quantize_weight;

  /// What multiplies so many rows of int8 with panels; the same bits from either.
  const kernels::GemmS8Kernels& gemm_s8_for(std::int64_t n_rows) const noexcept {
    return gemm_s8_tiles != nullptr && n_rows >= tuning.tile_rows ? *gemm_s8_tiles : gemm_s8;
  }

  int n_threads() const noexcept { return pool_.n_threads(); }
  std::int64_t n_parallel_loops() const noexcept { return pool_.n_shared_calls(); }

  /// The plan of a loop over [0, n). `cost_bytes` is about what one index reads and writes, and decides how
  /// many make a piece; little work runs on the calling thread.
  LoopPlan plan_loop(std::int64_t n, std::int64_t cost_bytes) const noexcept;
  /// body(begin, end, thread) over [0, loop.n).
  void parallel(const LoopPlan& loop,
                FunctionRef<void(std::int64_t begin, std::int64_t end, int thread)> body);
  void parallel(std::int64_t n, std::int64_t cost_bytes,
                FunctionRef<void(std::int64_t begin, std::int64_t end, int thread)> body) {
    parallel(plan_loop(n, cost_bytes), body);
  }
  /// The same, one index a piece.
  void parallel_each(std::int64_t n, FunctionRef<void(std::int64_t index, int thread)> body);

  WeightMemory weight_memory;

  /// Shared scratch, a second one, and one piece for each thread; reserve on the calling thread before a
  /// parallel loop.
  float* shared_scratch(std::size_t n_floats) { return shared_.reserve(n_floats); }
  float* second_scratch(std::size_t n_floats) { return second_.reserve(n_floats); }
  void reserve_thread_scratch(std::size_t n_floats);
  float* thread_scratch(int thread) { return per_thread_[static_cast<std::size_t>(thread)].reserve(0); }

 private:
  ThreadPool pool_;
  ScratchBuffer shared_;
  ScratchBuffer second_;
  std::vector<ScratchBuffer> per_thread_;
};

/// The kernels' name of a type; throws Error(kUnsupported) that names the tensor for others.
ElementType element_type_of(DType dtype, const std::string& tensor);

/// n / d rounded up.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t d) noexcept { return (n + d - 1) / d; }

}  // namespace triptych::cpu
