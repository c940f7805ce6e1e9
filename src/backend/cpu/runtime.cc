#include "backend/cpu/runtime.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace triptych::cpu {
namespace {

// A loop below this much memory traffic is not worth waking a thread (a few microseconds).
constexpr std::int64_t kMinPiece_bytes = 64 * 1024;

}  // namespace

float* ScratchBuffer::reserve(std::size_t n_floats) {
  // Whole huge pages: packed operands are read again and again.
  constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;
  std::size_t need_bytes = n_floats * sizeof(float);
  if (need_bytes > kHugePage_bytes / 2)
    need_bytes = (need_bytes + kHugePage_bytes - 1) / kHugePage_bytes * kHugePage_bytes;
  if (need_bytes > buffer_.size_bytes()) {
    buffer_ = Buffer();  // give back first
    buffer_ = Buffer::allocate(need_bytes);
  }
  return reinterpret_cast<float*>(buffer_.data());
}

Buffer WeightMemory::take(std::size_t size_bytes) {
  constexpr std::size_t kPiece_bytes = std::size_t{128} << 20;  // what is not used is not touched
  if (size_bytes >= kPiece_bytes / 2) return Buffer::zeros(size_bytes);
  const std::size_t room_bytes =
      (size_bytes + Buffer::kAlignment_bytes - 1) / Buffer::kAlignment_bytes * Buffer::kAlignment_bytes;
  std::byte* data = nullptr;
  std::shared_ptr<const void> owner;
  {
    const std::scoped_lock lock(mutex_);
    if (piece_.size_bytes() - used_bytes_ < room_bytes) {
      piece_ = Buffer::allocate(kPiece_bytes);
      used_bytes_ = 0;
    }
    data = piece_.data() + used_bytes_;
    owner = piece_.owner();
    used_bytes_ += room_bytes;
  }
  std::memset(data, 0, size_bytes);
  return Buffer::wrap(std::move(owner), data, size_bytes);
}

Runtime::Runtime(int n_threads, bool pin, CpuFeatures features_used, const CpuPolicy& policy_used,
                 const std::optional<CpuTuning>& tuning_used)
    : features(features_used),
      policy(policy_used),
      tuning(tuning_used ? *tuning_used : measured_tuning(features_used, policy_used.bf16_activations)),
      gemm(kernels::gemm_kernels(features_used)),
      gemm_bf16(tuning.emulated_tiles ? &kernels::kGemmBf16EmulatedTiles
                                      : kernels::gemm_bf16_kernels(features_used)),
      gemm_s8(kernels::gemm_s8_kernels(features_used)),
      gemm_s8_tiles(tuning.emulated_tiles ? &kernels::kGemmS8EmulatedTiles
                                          : kernels::gemm_s8_tile_kernels(features_used)),
      gemm_s4(kernels::gemm_s4_kernels(features_used)),
      gemv(kernels::gemv_kernels(features_used)),
      attention(kernels::attention_kernels(features_used)),
      attention_s8(kernels::attention_s8_kernels(features_used)),
      attention_s8_tiles(tuning.emulated_tiles ? &kernels::kAttentionS8EmulatedTiles
                                               : kernels::attention_s8_tile_kernels(features_used)),
      kv_rows(kernels::kv_row_kernels(features_used)),
      norm(kernels::norm_kernels(features_used)),
      pointwise(kernels::pointwise_kernels(features_used)),
      rows(kernels::row_kernels(features_used)),
      quantize_weight(kernels::quantize_weight_kernels(features_used)),
      pool_(n_threads, pin),
      per_thread_(static_cast<std::size_t>(pool_.n_threads())) {}

LoopPlan Runtime::plan_loop(std::int64_t n, std::int64_t cost_bytes) const noexcept {
  const std::int64_t grain = ceil_div(kMinPiece_bytes, std::max<std::int64_t>(cost_bytes, 1));
  return {n, n_threads() == 1 || grain >= n ? 0 : grain};
}

void Runtime::parallel(const LoopPlan& loop, FunctionRef<void(std::int64_t, std::int64_t, int)> body) {
  if (loop.n <= 0) return;
  if (loop.grain == 0) return body(0, loop.n, 0);
  pool_.parallel_guided(static_cast<std::size_t>(loop.n), static_cast<std::size_t>(loop.grain),
                        [&](std::size_t begin, std::size_t end, int thread) {
                          body(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end), thread);
                        });
}

void Runtime::parallel_each(std::int64_t n, FunctionRef<void(std::int64_t, int)> body) {
  if (n_threads() == 1 || n == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
  pool_.parallel_for(static_cast<std::size_t>(n), 1, [&](std::size_t begin, std::size_t end, int thread) {
    for (std::size_t i = begin; i < end; ++i) body(static_cast<std::int64_t>(i), thread);
  });
}

void Runtime::reserve_thread_scratch(std::size_t n_floats) {
  for (ScratchBuffer& scratch : per_thread_) scratch.reserve(n_floats);
}

ElementType element_type_of(DType dtype, const std::string& tensor) {
  if (dtype == DType::kF32) return ElementType::kF32;
  if (dtype == DType::kF16) return ElementType::kF16;
  if (dtype == DType::kBF16) return ElementType::kBF16;
  fail(ErrorCode::kUnsupported, "{}: the CPU backend computes with F32, F16 and BF16 weights, not {}", tensor,
       to_string(dtype));
}

}  // namespace triptych::cpu
