// What several tests of this folder make their operands and backends with.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/test_util.h"

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

}  // namespace triptych
