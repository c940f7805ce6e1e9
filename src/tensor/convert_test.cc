#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"

namespace triptych {
namespace {

const DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

double load(const std::byte* data, DType dtype) {
  std::uint16_t half = 0;
  std::uint8_t byte = 0;
  float f = 0;
  double d = 0;
  switch (dtype) {
    case DType::kF64:
      std::memcpy(&d, data, 8);
      return d;
    case DType::kF32:
      std::memcpy(&f, data, 4);
      return static_cast<double>(f);
    case DType::kF16:
      std::memcpy(&half, data, 2);
      return static_cast<double>(f16_to_f32(half));
    case DType::kBF16:
      std::memcpy(&half, data, 2);
      return static_cast<double>(bf16_to_f32(half));
    case DType::kF8E4M3:
      std::memcpy(&byte, data, 1);
      return static_cast<double>(f8e4m3_to_f32(byte));
    default:
      std::memcpy(&byte, data, 1);
      return static_cast<double>(f8e5m2_to_f32(byte));
  }
}

// What one element should become: through float, with the scalar functions (tested against arithmetic in
// half_test).
double expected(double value, DType to) {
  const auto f = static_cast<float>(value);
  switch (to) {
    case DType::kF64:
    case DType::kF32:
      return static_cast<double>(f);
    case DType::kF16:
      return static_cast<double>(f16_to_f32(f32_to_f16(f)));
    case DType::kBF16:
      return static_cast<double>(bf16_to_f32(f32_to_bf16(f)));
    case DType::kF8E4M3:
      return static_cast<double>(f8e4m3_to_f32(f32_to_f8e4m3(f)));
    default:
      return static_cast<double>(f8e5m2_to_f32(f32_to_f8e5m2(f)));
  }
}

TEST(Convert, EveryPairOfTypesAtAwkwardSizes) {
  Rng rng(3);
  for (const DType from : kFloats)
    for (const DType to : kFloats)
      for (const std::int64_t n : {1, 2, 15, 16, 17, 255, 256, 257, 1027}) {
        Tensor source(DType::kF32, {n});
        for (std::int64_t i = 0; i < n; ++i)
          source.f32()[i] =
              (rng.uniform_f32() - 0.5f) * std::ldexp(1.0f, static_cast<int>(rng.below(24)) - 16);
        Tensor a(from, {n});
        convert(source, a);
        Tensor b(to, {n});
        convert(a, b);
        for (std::int64_t i = 0; i < n; ++i) {
          const double value = load(a.view().data() + static_cast<std::size_t>(i) * size_bytes(from), from);
          const double got = load(b.view().data() + static_cast<std::size_t>(i) * size_bytes(to), to);
          const double want = from == to ? value : expected(value, to);
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got));
          } else {
            ASSERT_EQ(got, want) << to_string(from) << " to " << to_string(to) << " at " << i;
          }
        }
      }
}

TEST(Convert, EqualTypesKeepEveryBit) {
  std::uint16_t bits[] = {0x7e01, 0xfe55, 0x7c00, 0x0001, 0x8000};  // NaN payloads too
  std::uint16_t out[5] = {};
  convert(TensorView(bits, DType::kF16, {5}), TensorView(out, DType::kF16, {5}));
  EXPECT_EQ(std::memcmp(bits, out, sizeof(bits)), 0);
}

TEST(Convert, StridedViews) {
  Tensor wide = Tensor::zeros(DType::kF16, {3, 10});
  Tensor x(DType::kF32, {3, 2, 2});
  for (int i = 0; i < 12; ++i) x.f32()[i] = static_cast<float>(i);
  convert(x, wide.view().cols(3, 7).split_last(2, 2));
  const Tensor back = to_f32(wide);
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 10; ++c)
      EXPECT_EQ(back.f32()[r * 10 + c], c >= 3 && c < 7 ? static_cast<float>(r * 4 + c - 3) : 0.0f);
}

TEST(Convert, RefusesIntegersAndOtherShapes) {
  const Tensor a(DType::kF32, {4});
  EXPECT_THROW(convert(a, Tensor(DType::kI32, {4})), Error);
  EXPECT_THROW(convert(Tensor(DType::kI8, {4}), a), Error);
  EXPECT_THROW(convert(a, Tensor(DType::kF16, {2, 2})), Error);
  EXPECT_NO_THROW(convert(Tensor(DType::kF32, {0}), Tensor(DType::kF16, {0})));
}

}  // namespace
}  // namespace triptych
