// Helpers for the tests of kernels.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "backend/cpu/kernels/element_type.h"
#include "backend/cpu/kernels/scalar_load.h"
#include "base/cpu_info.h"

namespace triptych::kernels {

inline constexpr ElementType kElementTypes[] = {ElementType::kF32, ElementType::kF16, ElementType::kBF16};

/// Normal numbers, reproducible.
inline std::vector<float> random_floats(std::size_t n, unsigned seed, float sigma = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, sigma);
  std::vector<float> out(n);
  for (float& x : out) x = normal(engine);
  return out;
}

/// An array of `type`, `offset_bytes` away from an aligned address, with what its elements are as floats.
class StoredArray {
 public:
  StoredArray(ElementType type, const std::vector<float>& values, std::size_t offset_bytes = 0)
      : bytes_(values.size() * element_bytes(type) + offset_bytes), offset_(offset_bytes), as_float_(values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_element(data(), type, static_cast<std::ptrdiff_t>(i), values[i]);
      as_float_[i] = load_element(data(), type, static_cast<std::ptrdiff_t>(i));
    }
  }
  char* data() { return bytes_.data() + offset_; }
  const std::vector<float>& as_float() const { return as_float_; }

 private:
  std::vector<char> bytes_;
  std::size_t offset_;
  std::vector<float> as_float_;
};

/// Bytes that end where an inaccessible page begins: sanitizers do not see what tile instructions read.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t n_bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t room = (n_bytes + page - 1) / page * page;
    size_ = room + page;
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap");
    auto* begin = static_cast<std::uint8_t*>(memory_);
    if (::mprotect(begin + room, page, PROT_NONE) != 0) throw std::runtime_error("mprotect");
    data_ = begin + room - n_bytes;
  }
  ~GuardedBytes() { ::munmap(memory_, size_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::uint8_t* data() { return data_; }

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
  std::uint8_t* data_ = nullptr;
};

/// Distance in units in the last place of `expected` rounded to float; 0 for two NaNs or equal infinities.
inline double ulp_error(float got, double expected) {
  if (std::isnan(got) && std::isnan(expected)) return 0;
  const float rounded = static_cast<float>(expected);
  if (std::isinf(rounded) || std::isinf(got) || std::isnan(got) || std::isnan(expected))
    return got == rounded ? 0 : INFINITY;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(static_cast<double>(got) - expected) / ulp;
}

/// Sizes around a vector's or tile's length.
inline std::vector<int> sizes_around(int n) {
  std::vector<int> sizes = {1, n, n + 1, 4 * n + 3};
  if (n > 2) sizes.push_back(n - 1);
  return sizes;
}

}  // namespace triptych::kernels
