#include "backend/linear_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace triptych {
namespace {

constexpr std::int64_t kN = 3, kK = 80;

Tensor random_matrix() {
  Rng rng(11);
  Tensor out(DType::kF32, {kN, kK});
  for (std::int64_t i = 0; i < kN * kK; ++i) out.f32()[i] = rng.uniform_f32() - 0.5F;
  return out;
}

QuantizedSource source_of(const char* format) {
  return {.name = "w",
          .matrix = std::make_shared<QuantizedMatrix>(quantize(random_matrix(), QuantFormat::parse(format)))};
}

// As the head of linear_source.h says it, one element after another.
TEST(QuantizedSource, ValuesHaveTheirGroupColumnAndInputScale) {
  for (const char* format : {"int4:g32:asym", "int4:g16:sym:bf16", "int8:g32", "nf4:g16", "fp8:g16"}) {
    QuantizedSource source = source_of(format);
    const QuantizedMatrix& m = *source.matrix;
    const std::int64_t n_groups = m.format.n_groups(kK);
    for (std::int64_t j = 0; j < kK; ++j) {
      source.group_index.push_back(static_cast<std::int32_t>(j * 7 % n_groups));
      source.permutation.push_back(static_cast<std::int32_t>((j * 3 + 5) % kK));
      source.input_scales.push_back(1 + 0.125F * static_cast<float>(j % 5));
    }
    source.check();
    float row[kK];
    for (std::int64_t n = 0; n < kN; ++n) {
      source.load_row(n, row);
      for (std::size_t j = 0; j < kK; ++j) {
        const auto k = static_cast<std::size_t>(source.permutation[j]);
        const std::int64_t in_group = source.group_index[j] * m.format.group_of_row(kK);
        const float scale = m.scale(n, in_group);
        const auto code = m.code(n, static_cast<std::int64_t>(j));
        const float value =
            m.format.code == QuantCode::kNf4 ? scale * kNf4Levels[code]
            : m.format.bits() == 4 || m.format.code == QuantCode::kInt8
                ? scale * static_cast<float>(code - m.zero(n, in_group))
                : scale * m.value(n, static_cast<std::int64_t>(j)) / m.scale(n, static_cast<std::int64_t>(j));
        EXPECT_NEAR(row[k], value * source.input_scales[k], 1e-6F * std::abs(row[k]))
            << format << " " << n << " " << j;
      }
    }
  }
}

TEST(QuantizedSource, PlainRowsAreTheCodecsValues) {
  for (const char* format : {"int8", "int4", "int4:two-level", "nf4"}) {
    const QuantizedSource source = source_of(format);
    float row[kK];
    source.load_row(1, row);
    for (std::int64_t k = 0; k < kK; ++k) EXPECT_EQ(row[k], source.matrix->value(1, k)) << format << " " << k;
  }
}

TEST(QuantizedSource, ChecksNameTheMatrixAndTheArray) {
  const auto message = [](QuantizedSource source) -> std::string {
    try {
      source.check();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
      return error.what();
    }
    return "accepted";
  };
  QuantizedSource source = source_of("int4:g16:asym");
  EXPECT_EQ(message(source), "accepted");
  source.group_index.assign(kK - 1, 0);
  EXPECT_THAT(message(source), testing::HasSubstr("w: group index: expected 80 elements, got 79"));
  source.group_index.assign(kK, 5);
  EXPECT_THAT(message(source), testing::HasSubstr("w: group index: group 5 of 5"));
  source.group_index.clear();
  source.permutation.assign(kK, 3);
  EXPECT_THAT(message(source), testing::HasSubstr("w: permutation: 3"));
  source.permutation.clear();
  source.input_scales.assign(kK, INFINITY);
  EXPECT_THAT(message(source), testing::HasSubstr("w: input scales"));
  source.input_scales.clear();
  QuantizedMatrix short_codes = quantize(random_matrix(), QuantFormat::parse("int4:g16:asym"));
  short_codes.codes = Buffer::zeros(7);
  source.matrix = std::make_shared<QuantizedMatrix>(std::move(short_codes));
  EXPECT_THAT(message(source),
              testing::HasSubstr("w: codes: expected 120 bytes for [3, 80] as int4:g16:asym, got 7"));
}

TEST(LinearSpec, TheTargetIsWhatIsGivenOrWhatIsStored) {
  LinearSpec spec;
  spec.name = "qkv";
  const auto floats = std::make_shared<Tensor>(random_matrix());
  spec.add(WeightEntry{"q", floats->view(), floats, "test"});
  EXPECT_EQ(spec.target_format(), std::nullopt);
  spec.add(source_of("int8"));
  EXPECT_THROW(spec.target_format(), Error);
  spec.format = QuantFormat::parse("nf4");
  EXPECT_EQ(spec.target_format(), QuantFormat::parse("nf4"));
  spec.format.reset();
  spec.parts.erase(spec.parts.begin());
  EXPECT_EQ(spec.target_format(), QuantFormat::parse("int8"));
  spec.add(source_of("int4"));
  EXPECT_THROW(spec.target_format(), Error);
  spec.parts.back() = {PackedLinear{QuantFormat::parse("int8"), kN, kK, {}}};
  EXPECT_THROW(spec.target_format(), Error);
  spec.parts.erase(spec.parts.begin());
  EXPECT_EQ(spec.target_format(), QuantFormat::parse("int8"));
}

}  // namespace
}  // namespace triptych
