#include "backend/cpu/kernels/rows/rows.h"

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

// Every 16-bit pattern, so all subnormals, infinities and NaN.
TEST(Rows, WidenIsExactForEveryValue) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const Isa isa : usable_isas()) {
    for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
      std::vector<float> got(all.size());
      row_kernels(isa).widen(type, 65536, all.data(), got.data());
      for (std::size_t i = 0; i < all.size(); ++i) {
        const float expected = load_element(all.data(), type, static_cast<std::ptrdiff_t>(i));
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(got[i]));
        } else {
          ASSERT_EQ(std::memcmp(&got[i], &expected, 4), 0) << row_kernels(isa).name << " " << i;
        }
      }
    }
  }
}

TEST(Rows, NarrowRoundsToNearestEven) {
  std::vector<float> x = random_floats(20000, 1, 100.0F);
  const std::vector<float> small = random_floats(20000, 2, 1e-6F);
  x.insert(x.end(), small.begin(), small.end());
  for (const float special :
       {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 65504.0F, 65519.0F, 65520.0F, 1e30F, 3.4e38F, 5.9604645e-8F,
        2.9802322e-8F, 2.9802326e-8F, 1.0009766F, 1.0004883F, 1.0014648F, 1e-45F})
    x.push_back(special);
  for (const Isa isa : usable_isas()) {
    for (const ElementType type : kElementTypes) {
      StoredArray expected(type, x);
      std::vector<char> got(x.size() * 4);
      row_kernels(isa).narrow(type, static_cast<std::ptrdiff_t>(x.size()), x.data(), got.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float value = load_element(got.data(), type, static_cast<std::ptrdiff_t>(i));
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(value));
        } else {
          ASSERT_EQ(std::memcmp(&value, &expected.as_float()[i], 4), 0)
              << row_kernels(isa).name << " type " << static_cast<int>(type) << " of " << x[i];
        }
      }
    }
  }
}

TEST(Rows, TouchesNothingElse) {
  for (const Isa isa : usable_isas()) {
    for (const ElementType type : kElementTypes) {
      for (int n = 1; n < 40; ++n) {
        StoredArray stored(type, random_floats(static_cast<std::size_t>(n), 3), 1);
        std::vector<float> wide(static_cast<std::size_t>(n) + 1, -77.0F);
        row_kernels(isa).widen(type, n, stored.data(), wide.data());
        for (int i = 0; i < n; ++i)
          ASSERT_EQ(wide[static_cast<std::size_t>(i)], stored.as_float()[static_cast<std::size_t>(i)]);
        ASSERT_EQ(wide[static_cast<std::size_t>(n)], -77.0F);
        const std::size_t size_bytes = static_cast<std::size_t>(n) * element_bytes(type);
        std::vector<char> narrow(size_bytes + 2, 0x55);
        row_kernels(isa).narrow(type, n, wide.data(), narrow.data() + 1);
        ASSERT_EQ(std::memcmp(narrow.data() + 1, stored.data(), size_bytes), 0);
        ASSERT_EQ(narrow[0], 0x55);
        ASSERT_EQ(narrow[size_bytes + 1], 0x55);
      }
    }
  }
}

}  // namespace
}  // namespace triptych::kernels
