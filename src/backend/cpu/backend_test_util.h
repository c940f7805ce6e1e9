// What several tests of this folder make their operands and backends with.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/test_util.h"
#include "backend/exec_context.h"

namespace triptych {

inline std::unique_ptr<Backend> backend(int n_threads) {
  return make_cpu_backend({n_threads, false, std::nullopt});
}

/// Normally distributed float32 values.
inline Tensor random_tensor(const Shape& shape, unsigned seed, float sigma = 1.0F) {
  Tensor t(DType::kF32, shape);
  const std::vector<float> values =
      kernels::random_floats(static_cast<std::size_t>(shape.numel()), seed, sigma);
  std::memcpy(t.f32(), values.data(), values.size() * sizeof(float));
  return t;
}

/// An attention of q over k and v in segments, with the usual scale of its head width.
inline AttentionArgs attention_args(const TensorView& q, const TensorView& k, const TensorView& v,
                                    std::span<const std::int32_t> cu_q, std::span<const std::int32_t> cu_k,
                                    bool causal = false) {
  return {.q = q,
          .k = k,
          .v = v,
          .cu_q = cu_q,
          .cu_k = cu_k,
          .scale = 1.0F / std::sqrt(static_cast<float>(q.dim(2))),
          .causal = causal};
}

/// Changes nothing but makes the context compute every step by itself.
class Onlooker final : public ExecObserver {
 public:
  bool wants_taps() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  void on_linear(const LinearWeight&, const TensorView& x) override { rows_seen += x.dim(0); }
  std::int64_t rows_seen = 0;
};

}  // namespace triptych
