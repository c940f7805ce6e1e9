// All values of the narrow formats against arithmetic that shares nothing with the implementation: ldexp on
// the fields, and rounding by comparing distances to all neighbours.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace triptych {
namespace {

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  float (*decode)(std::uint32_t);
  std::uint32_t (*encode)(float);

  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t count() const { return sign_bit() * 2; }
};

const Format kFormats[] = {
    {"bf16", 8, 7, true, [](std::uint32_t b) { return bf16_to_f32(static_cast<std::uint16_t>(b)); },
     [](float f) -> std::uint32_t { return f32_to_bf16(f); }},
    {"f16", 5, 10, true, [](std::uint32_t b) { return f16_to_f32(static_cast<std::uint16_t>(b)); },
     [](float f) -> std::uint32_t { return f32_to_f16(f); }},
    {"f8e4m3", 4, 3, false, [](std::uint32_t b) { return f8e4m3_to_f32(static_cast<std::uint8_t>(b)); },
     [](float f) -> std::uint32_t { return f32_to_f8e4m3(f); }},
    {"f8e5m2", 5, 2, true, [](std::uint32_t b) { return f8e5m2_to_f32(static_cast<std::uint8_t>(b)); },
     [](float f) -> std::uint32_t { return f32_to_f8e5m2(f); }},
};

// The value of the fields by definition.
double defined_value(const Format& f, std::uint32_t bits) {
  const double sign = (bits & f.sign_bit()) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>((bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1));
  const double mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  const double full = (1 << f.mantissa_bits) - 1;
  if (f.has_infinity && exponent == top)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  if (!f.has_infinity && exponent == top && mantissa == full) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -f.mantissa_bits), exponent - bias);
}

// Magnitude bits that `value` (not negative) rounds to: binary search of the neighbours, then the nearer one.
std::uint32_t defined_rounding(const Format& f, double value) {
  std::uint32_t top = f.sign_bit() - 1;  // largest finite
  while (!std::isfinite(defined_value(f, top))) --top;
  std::uint32_t low = 0;
  std::uint32_t high = top + 1;  // stands for the first number too large
  const auto at = [&](std::uint32_t bits) {
    // One step above the largest finite number, as if the exponent went on.
    return bits <= top ? defined_value(f, bits) : 2 * defined_value(f, top) - defined_value(f, top - 1);
  };
  if (value >= at(high)) return high;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= value ? low : high) = middle;
  }
  const double below = value - at(low);
  const double above = at(high) - value;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

class HalfTest : public testing::TestWithParam<Format> {};

TEST_P(HalfTest, EveryValueDecodesToItsDefinition) {
  const Format f = GetParam();
  for (std::uint32_t bits = 0; bits < f.count(); ++bits) {
    const double expected = defined_value(f, bits);
    const float got = f.decode(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(got), expected) << bits;
      ASSERT_EQ(std::signbit(got), (bits & f.sign_bit()) != 0) << bits;
    }
  }
}

TEST_P(HalfTest, EveryValueSurvivesARoundTrip) {
  const Format f = GetParam();
  for (std::uint32_t bits = 0; bits < f.count(); ++bits) {
    const float value = f.decode(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f.decode(f.encode(value)))) << bits;
      ASSERT_EQ(f.encode(value) & f.sign_bit(), bits & f.sign_bit()) << bits;
    } else {
      ASSERT_EQ(f.encode(value), bits);
    }
  }
}

TEST_P(HalfTest, RoundsToNearestEven) {
  const Format f = GetParam();
  std::vector<float> values;
  // Between all neighbours: the middle, and the floats on both sides of it.
  for (std::uint32_t bits = 0; bits + 1 < f.sign_bit(); ++bits) {
    const double a = defined_value(f, bits);
    const double b = defined_value(f, bits + 1);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const auto middle = static_cast<float>((a + b) / 2);
    values.insert(values.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e38f)});
  }
  // Around the overflow, and the edges of float.
  std::uint32_t top = f.sign_bit() - 1;
  while (!std::isfinite(defined_value(f, top))) --top;
  const double largest = defined_value(f, top);
  const double step = largest - defined_value(f, top - 1);
  for (const double x : {largest + step / 4, largest + step / 2, largest + step, largest * 1.5}) {
    const auto value = static_cast<float>(x);
    if (std::isfinite(value))
      values.insert(values.end(), {value, std::nextafter(value, 0.0f), std::nextafter(value, 3e38f)});
  }
  for (const float x : {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                        std::numeric_limits<float>::max(), 0.0f})
    values.push_back(x);
  Rng rng(7);
  for (int i = 0; i < 300000; ++i) {
    const float x = std::bit_cast<float>(rng.next_u32() & 0x7fffffffu);
    if (std::isfinite(x)) values.push_back(x);
  }
  for (const float value : values) {
    const std::uint32_t expected = defined_rounding(f, static_cast<double>(value));
    const std::uint32_t got = f.encode(value);
    if (expected > top) {
      const float back = f.decode(got);
      ASSERT_TRUE(f.has_infinity ? std::isinf(back) : std::isnan(back)) << f.name << " " << value;
    } else {
      ASSERT_EQ(got, expected) << f.name << " " << value;
    }
    ASSERT_EQ(f.encode(-value), got | f.sign_bit()) << f.name << " " << value;
  }
}

TEST_P(HalfTest, InfinityAndNan) {
  const Format f = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  const float back = f.decode(f.encode(infinity));
  const float negative = f.decode(f.encode(-infinity));
  if (f.has_infinity) {
    EXPECT_EQ(back, infinity);
    EXPECT_EQ(negative, -infinity);
  } else {
    EXPECT_TRUE(std::isnan(back));
    EXPECT_TRUE(std::isnan(negative));
  }
  // Quiet and signalling NaN, payload only in the low bits.
  for (const std::uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu})
    EXPECT_TRUE(std::isnan(f.decode(f.encode(std::bit_cast<float>(bits))))) << std::hex << bits;
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, testing::ValuesIn(kFormats),
                         [](const testing::TestParamInfo<Format>& test) { return test.param.name; });

// Numbers that anybody can look up.
TEST(Half, KnownValues) {
  EXPECT_EQ(f16_to_f32(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(3.14159265f), 0x4049);
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(f32_to_f8e4m3(464.0f), 0x7e);  // half way to the NaN pattern: ties to even
  EXPECT_EQ(f32_to_f8e4m3(465.0f), 0x7f);
  EXPECT_EQ(f8e5m2_to_f32(0x7b), 57344.0f);
}

}  // namespace
}  // namespace triptych
