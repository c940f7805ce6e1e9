#include "backend/cpu/kernels/kv_rows/kv_rows.h"

#include <cmath>
#include <limits>

#include "backend/cpu/kernels/test_util.h"
#include "base/half.h"

namespace triptych::kernels {
namespace {

constexpr KvCode kCodes[] = {KvCode::kInt8, KvCode::kFp8, KvCode::kInt4};
constexpr float kInf = std::numeric_limits<float>::infinity();

// Exactly as long as needed, so that a sanitizer sees every byte beyond.
std::vector<std::uint8_t> encoded(const KvRowKernels& kernels, KvCode code, const std::vector<float>& x,
                                  const std::uint16_t* offset) {
  std::vector<std::uint8_t> row(
      static_cast<std::size_t>(kv_row_bytes(code, static_cast<std::ptrdiff_t>(x.size()))), 0xee);
  kernels.encode(code, static_cast<std::ptrdiff_t>(x.size()), x.data(), offset, row.data());
  return row;
}

std::vector<float> decoded(const KvRowKernels& kernels, KvCode code, std::size_t n,
                           const std::vector<std::uint8_t>& row, const std::uint16_t* offset) {
  std::vector<float> y(n);
  kernels.decode(code, static_cast<std::ptrdiff_t>(n), row.data(), offset, y.data());
  return y;
}

TEST(KvRows, EveryInstructionSetGivesTheScalarBits) {
  for (const Isa isa : usable_isas())
    for (const KvCode code : kCodes)
      for (const int n : {1, 3, 15, 16, 17, 31, 32, 33, 64, 80, 88, 100, 128, 257})
        for (const bool with_offset : {false, true}) {
          const std::vector<float> x =
              random_floats(static_cast<std::size_t>(n), 5 + static_cast<unsigned>(n));
          std::vector<std::uint16_t> offset(x.size());
          for (std::size_t i = 0; i < offset.size(); i += 3) offset[i] = f32_to_bf16(x[(i * 7) % x.size()]);
          const std::uint16_t* o = with_offset ? offset.data() : nullptr;
          const auto expected = encoded(kKvRowScalar, code, x, o);
          ASSERT_EQ(encoded(kv_row_kernels(isa), code, x, o), expected)
              << to_string(isa) << " code " << static_cast<int>(code) << " n " << n;
          ASSERT_EQ(decoded(kv_row_kernels(isa), code, x.size(), expected, o),
                    decoded(kKvRowScalar, code, x.size(), expected, o))
              << to_string(isa) << " code " << static_cast<int>(code) << " n " << n;
        }
}

TEST(KvRows, Int8IsWithinHalfAStep) {
  for (const Isa isa : usable_isas()) {
    const std::vector<float> x = random_floats(128, 3, 2.5F);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const auto y = decoded(kv_row_kernels(isa), KvCode::kInt8, x.size(),
                           encoded(kv_row_kernels(isa), KvCode::kInt8, x, nullptr), nullptr);
    // The scale is a bfloat16.
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], x[i], largest / 127 * (0.5001F + 1.0F / 512)) << i;
  }
}

TEST(KvRows, Fp8IsTheFormatsOwnRounding) {
  for (const Isa isa : usable_isas()) {
    std::vector<float> x = random_floats(200, 4);
    for (std::size_t i = 0; i < x.size(); i += 5) x[i] *= 1e-3F;  // among subnormal codes
    x[7] = 0.0F;
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const auto row = encoded(kv_row_kernels(isa), KvCode::kFp8, x, nullptr);
    const auto y = decoded(kv_row_kernels(isa), KvCode::kFp8, x.size(), row, nullptr);
    const float scale = bf16_to_f32(f32_to_bf16(largest / 448.0F));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float scaled = std::clamp(x[i] * (1.0F / scale), -448.0F, 448.0F);
      ASSERT_EQ(row[i], f32_to_f8e4m3(scaled)) << i;
      ASSERT_EQ(y[i], f8e4m3_to_f32(row[i]) * scale) << i;
    }
  }
  // Every code decodes as the format says.
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN is never written
    std::vector<std::uint8_t> row(6);
    row[0] = static_cast<std::uint8_t>(code);
    const std::uint16_t one = f32_to_bf16(1.0F);
    std::memcpy(row.data() + 4, &one, 2);
    EXPECT_EQ(decoded(kKvRowScalar, KvCode::kFp8, 1, row, nullptr)[0],
              f8e4m3_to_f32(static_cast<std::uint8_t>(code)));
  }
}

TEST(KvRows, Int4IsWithinHalfAStepOfItsGroup) {
  for (const Isa isa : usable_isas()) {
    std::vector<float> x = random_floats(80, 9);
    for (std::size_t i = 0; i < 64; ++i) x[i] += 100.0F;  // a group far from zero
    const auto y = decoded(kv_row_kernels(isa), KvCode::kInt4, x.size(),
                           encoded(kv_row_kernels(isa), KvCode::kInt4, x, nullptr), nullptr);
    for (std::size_t g = 0; g < x.size(); g += 64) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(g);
      const auto last = x.begin() + static_cast<std::ptrdiff_t>(std::min(g + 64, x.size()));
      const auto [low, high] = std::minmax_element(first, last);
      // The step and the minimum are bfloat16: 15 steps may be 15/512 short, the minimum 1/512 off.
      const float step = (*high - *low) / 15;
      const float bound = step * (0.5F + 15.0F / 512) + std::fabs(*low) / 512;
      for (std::size_t i = g; i < std::min(g + 64, x.size()); ++i) EXPECT_NEAR(y[i], x[i], bound) << i;
    }
  }
}

TEST(KvRows, ConstantChannelsDoNotTakeTheLevels) {
  // Two channels of 200 beside values of about 1, as keys of Qwen2 have them.
  std::vector<float> first = random_floats(128, 1);
  std::vector<float> later = random_floats(128, 2);
  for (const std::size_t channel : {5U, 69U}) {
    first[channel] += 200.0F;
    later[channel] += 200.0F;
  }
  for (const Isa isa : usable_isas()) {
    const KvRowKernels& kernels = kv_row_kernels(isa);
    std::vector<KvOffset> offsets(static_cast<std::size_t>(kv_max_offsets(128)));
    kernels.choose_offsets(128, first.data(), offsets.data());
    const std::size_t larger = first[5] > first[69] ? 0 : 1;
    EXPECT_EQ(offsets[larger].channel, 5);
    EXPECT_EQ(offsets[1 - larger].channel, 69);
    EXPECT_EQ(offsets[1 - larger].value, f32_to_bf16(first[69]));
    for (std::size_t i = 2; i < offsets.size(); ++i) EXPECT_EQ(offsets[i].value, 0);
    std::vector<float> rest = later;
    for (const KvOffset& one : offsets) rest[one.channel] -= bf16_to_f32(one.value);
    for (const KvCode code : kCodes) {
      double with = 0;
      double without = 0;
      const auto a = decoded(kernels, code, 128, encoded(kernels, code, rest, nullptr), nullptr);
      const auto b = decoded(kernels, code, 128, encoded(kernels, code, later, nullptr), nullptr);
      for (std::size_t i = 0; i < 128; ++i) {
        with += std::pow(a[i] - rest[i], 2.0);
        without += std::pow(b[i] - later[i], 2.0);
      }
      EXPECT_LT(with * 20, without) << static_cast<int>(code);
    }
  }
}

TEST(KvRows, NoOffsetForOrdinaryRows) {
  const std::vector<float> x = random_floats(128, 21);
  for (const Isa isa : usable_isas()) {
    std::vector<KvOffset> offsets(static_cast<std::size_t>(kv_max_offsets(128)), {1, 1});
    kv_row_kernels(isa).choose_offsets(128, x.data(), offsets.data());
    for (const KvOffset& one : offsets) EXPECT_EQ(one.value, 0);
  }
}

// As many channels as can be far above the rest; lengths without room for any.
TEST(KvRows, OffsetsHaveRoomForAllThatStandOut) {
  for (const Isa isa : usable_isas())
    for (const int n : {1, 15, 16, 17, 33, 64, 100, 128}) {
      const auto most = static_cast<std::size_t>(kv_max_offsets(n));
      std::vector<float> x(static_cast<std::size_t>(n), 1e-3F);
      for (std::size_t i = 0; i < most; ++i) x[2 * i + 1] = -80.0F;
      std::vector<KvOffset> offsets(most, {7, 7});
      kv_row_kernels(isa).choose_offsets(n, x.data(), offsets.data());
      for (std::size_t i = 0; i < most; ++i) {
        EXPECT_EQ(offsets[i].channel, 2 * i + 1) << n;
        EXPECT_EQ(bf16_to_f32(offsets[i].value), -80.0F) << n;
      }
    }
}

TEST(KvRows, WhatIsNotFiniteDecodesToNan) {
  for (const Isa isa : usable_isas())
    for (const KvCode code : kCodes)
      for (const float bad : {kInf, -kInf, std::nanf("")}) {
        std::vector<float> x = random_floats(32, 6);
        x[17] = bad;
        const auto y =
            decoded(kv_row_kernels(isa), code, 32, encoded(kv_row_kernels(isa), code, x, nullptr), nullptr);
        for (const float v : y) EXPECT_TRUE(std::isnan(v));
      }
}

TEST(KvRows, ZerosAndTinyRowsAreZero) {
  for (const Isa isa : usable_isas())
    for (const KvCode code : kCodes)
      for (const float tiny : {0.0F, -0.0F, 1e-40F}) {
        const std::vector<float> x(70, tiny);
        for (const float v :
             decoded(kv_row_kernels(isa), code, 70, encoded(kv_row_kernels(isa), code, x, nullptr), nullptr))
          EXPECT_NEAR(v, 0.0F, 1e-36F);
      }
}

}  // namespace
}  // namespace triptych::kernels
