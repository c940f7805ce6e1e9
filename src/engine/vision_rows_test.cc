// Rows of pictures packed and unpacked, and files of them of which any byte is wrong.
#include "engine/vision_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace triptych {
namespace {

constexpr Fingerprint kKey{1, 2, 3, 4};

Tensor random_rows(std::int64_t n, std::int64_t width, std::uint64_t seed = 1) {
  Rng rng(seed);
  Tensor out(DType::kF32, {n, width});
  for (std::int64_t i = 0; i < n * width; ++i)
    out.f32()[i] = static_cast<float>(2 * rng.uniform() - 1) * static_cast<float>(1 + i / width);
  return out;
}

std::vector<std::byte> file_of(const VisionRows& rows, double encode_ms = 12.5) {
  const VisionRowsFile::Header header = VisionRowsFile::header_of(kKey, rows, encode_ms);
  std::vector<std::byte> out(header.begin(), header.end());
  out.insert(out.end(), rows.payload().begin(), rows.payload().end());
  return out;
}

ExpectedVisionRows expected(std::int64_t n, VisionRowsDType dtype) { return {kKey, n, dtype}; }

// What a file that is not believed is refused with.
std::string refusal(std::span<const std::byte> file, const ExpectedVisionRows& wanted) {
  try {
    parse_vision_rows(file, wanted);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
    return error.what();
  }
}

TEST(VisionRows, AreExactInFp32) {
  const Tensor rows = random_rows(3, 17);
  const auto packed = VisionRows::pack(rows, VisionRowsDType::kF32);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->size_bytes(), 3U * 17 * 4);
  Tensor back(DType::kF32, {3, 17});
  packed->unpack(back);
  EXPECT_EQ(std::memcmp(back.f32(), rows.f32(), packed->size_bytes()), 0);
}

// Rounding to nearest: no value moves by more than half a step of its own row.
TEST(VisionRows, MoveByHalfAStepOfTheirRowInInt8) {
  const Tensor rows = random_rows(5, 33);
  const auto packed = VisionRows::pack(rows, VisionRowsDType::kInt8);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->size_bytes(), 5U * (33 + 4));
  Tensor back(DType::kF32, {5, 33});
  packed->unpack(back);
  for (std::int64_t i = 0; i < 5; ++i) {
    const float* x = rows.f32() + i * 33;
    float most = 0;
    for (int k = 0; k < 33; ++k) most = std::max(most, std::fabs(x[k]));
    for (int k = 0; k < 33; ++k)
      EXPECT_NEAR(back.f32()[i * 33 + k], x[k], most / 127 * 0.5001F) << i << " " << k;
  }
}

TEST(VisionRows, OfZerosAndOfTheSmallestNumbersStayInRange) {
  Tensor rows = Tensor::zeros(DType::kF32, {2, 4});
  rows.f32()[5] = std::numeric_limits<float>::denorm_min();
  const auto packed = VisionRows::pack(rows, VisionRowsDType::kInt8);
  ASSERT_TRUE(packed);
  Tensor back(DType::kF32, {2, 4});
  packed->unpack(back);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(back.f32()[i], 0.0F, std::numeric_limits<float>::min());
}

TEST(VisionRows, AreNotKeptWhenAValueIsNotFinite) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Tensor rows = random_rows(2, 3);
      rows.f32()[4] = bad;
      EXPECT_FALSE(VisionRows::pack(rows, dtype));
    }
}

TEST(VisionRowsFile, IsReadAsItWasWritten) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8}) {
    const VisionRows rows = *VisionRows::pack(random_rows(4, 9), dtype);
    const std::vector<std::byte> file = file_of(rows);
    EXPECT_EQ(file.size(), VisionRowsFile::kHeader_bytes + rows.size_bytes());
    const VisionRows back = parse_vision_rows(file, expected(4, dtype));
    EXPECT_EQ(back.n_columns(), 9);
    EXPECT_TRUE(std::equal(back.payload().begin(), back.payload().end(), rows.payload().begin(),
                           rows.payload().end()));
    VisionRowsFile::Header header;
    std::memcpy(header.data(), file.data(), header.size());
    EXPECT_EQ(VisionRowsFile(header, file.size(), expected(4, dtype)).encode_ms(), 12.5);
  }
}

// Each byte of header and payload, in each of its bits: no change passes.
TEST(VisionRowsFile, IsRefusedWithAnyBitChanged) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8}) {
    std::vector<std::byte> file = file_of(*VisionRows::pack(random_rows(2, 5), dtype));
    for (std::size_t at = 0; at < file.size(); ++at)
      for (unsigned bit = 0; bit < 8; ++bit) {
        file[at] ^= static_cast<std::byte>(1U << bit);
        EXPECT_NE(refusal(file, expected(2, dtype)), "") << at << " " << bit;
        file[at] ^= static_cast<std::byte>(1U << bit);
      }
    EXPECT_EQ(refusal(file, expected(2, dtype)), "");
  }
}

TEST(VisionRowsFile, IsRefusedAtAnyOtherLength) {
  std::vector<std::byte> file = file_of(*VisionRows::pack(random_rows(2, 3), VisionRowsDType::kInt8));
  for (std::size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(refusal(std::span(file).first(n), expected(2, VisionRowsDType::kInt8)), "") << n;
  file.push_back(std::byte{0});
  EXPECT_THAT(refusal(file, expected(2, VisionRowsDType::kInt8)),
              testing::HasSubstr("expected 126 bytes, the file has 127"));
}

TEST(VisionRowsFile, OfSomethingElseIsRefused) {
  const std::vector<std::byte> file = file_of(*VisionRows::pack(random_rows(2, 3), VisionRowsDType::kF32));
  EXPECT_THAT(refusal(file, expected(3, VisionRowsDType::kF32)),
              testing::HasSubstr("expected 3 rows, got 2"));
  EXPECT_THAT(refusal(file, expected(2, VisionRowsDType::kInt8)),
              testing::HasSubstr("expected rows as int8"));
  EXPECT_THAT(refusal(file, {.key = {9}, .n_rows = 2, .dtype = VisionRowsDType::kF32}),
              testing::HasSubstr("expected key 09000000"));
}

// A header that promises more than memory holds is refused for the length of its file, before memory is
// taken.
TEST(VisionRowsFile, TakesNoMemoryForAPayloadThatIsNotThere) {
  VisionRowsFile::Header header =
      VisionRowsFile::header_of(kKey, *VisionRows::pack(random_rows(2, 3), VisionRowsDType::kF32), 1);
  const std::uint64_t columns = std::uint64_t{1} << 30;
  const std::uint64_t bytes = 2 * columns * 4;
  std::memcpy(header.data() + 56, &columns, 8);
  std::memcpy(header.data() + 64, &bytes, 8);
  EXPECT_THAT(refusal(header, expected(2, VisionRowsDType::kF32)), testing::HasSubstr("the file has 112"));
  const std::uint64_t too_many = std::uint64_t{1} << 62;
  std::memcpy(header.data() + 56, &too_many, 8);
  EXPECT_THAT(refusal(header, expected(2, VisionRowsDType::kF32)), testing::HasSubstr("columns"));
}

TEST(VisionRowsDType, HasWords) {
  for (const VisionRowsDType dtype : {VisionRowsDType::kF32, VisionRowsDType::kInt8})
    EXPECT_EQ(parse_vision_rows_dtype(to_string(dtype)), dtype);
  EXPECT_THROW(parse_vision_rows_dtype("int4"), Error);
}

}  // namespace
}  // namespace triptych
