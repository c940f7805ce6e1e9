// Quantized matrices that come from elsewhere, against the same matrices quantized while loading.
#include "backend/linear_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/rng.h"

namespace triptych {
namespace {

constexpr std::int64_t kN = 70, kK = 200;  // a panel that is not full, a group that is shorter

std::shared_ptr<Tensor> random_matrix(std::int64_t n, std::int64_t k, std::uint64_t seed) {
  Rng rng(seed);
  auto out = std::make_shared<Tensor>(DType::kF32, Shape{n, k});
  for (std::int64_t i = 0; i < n * k; ++i) out->f32()[i] = rng.uniform_f32() - 0.5F;
  return out;
}

QuantizedSource quantized(const Tensor& w, const QuantFormat& format) {
  return {.name = "stored", .matrix = std::make_shared<QuantizedMatrix>(quantize(w, format))};
}

std::unique_ptr<Backend> make_backend() {
  return make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt});
}

void expect_same_arrays(const LinearWeight& a, const LinearWeight& b, const char* what) {
  const std::vector<PackedArray> left = a.packed(), right = b.packed();
  ASSERT_EQ(left.size(), right.size()) << what;
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].name, right[i].name) << what;
    ASSERT_EQ(left[i].view.shape(), right[i].view.shape()) << what;
    EXPECT_EQ(std::memcmp(left[i].view.cdata(), right[i].view.cdata(), left[i].view.size_bytes()), 0)
        << what << " " << left[i].name;
  }
}

void expect_same_products(Backend& backend, const LinearWeight& a, const LinearWeight& b, const char* what) {
  for (const std::int64_t m : {1, 40}) {
    const auto x = random_matrix(m, a.n_in(), 9);
    Tensor y(DType::kF32, {m, a.n_out()}), z(DType::kF32, {m, a.n_out()});
    TensorView to_y = y.view(), to_z = z.view();
    backend.linear(a, x->view(), {}, to_y);
    backend.linear(b, x->view(), {}, to_z);
    EXPECT_EQ(std::memcmp(y.f32(), z.f32(), y.view().size_bytes()), 0) << what << ", " << m << " rows";
  }
}

// The codec's codes, taken as they are, give what quantizing while loading gives: arrays and products alike.
TEST(LinearSource, CodesOfTheCodecEqualQuantizingWhileLoading) {
  const auto backend = make_backend();
  const std::pair<const char*, const char*> formats[] = {
      // of the codec, while loading
      {"int8:channel:fp32", "int8"},
      {"int8:g32", "int8:g32"},
      {"nf4", "nf4"},
      {"int4", "int4"},
      {"int4:channel:half", "int4:channel:half"},
      {"int4:g32:absmax", "int4:g32:absmax"},
      {"int4:g32:asym", "int4:g32:asym"},
      {"int4:g32:sym:bf16", "int4:g32:sym:bf16"},
      {"int4:g32:asym:bf16", "int4:g32:asym:bf16"},
      {"int4:g128:sym:two-level", "int4:g128:sym:two-level"},
      {"int4:g32:asym:two-level", "int4:g32:asym:two-level"}};
  for (const auto& [codec, loading] : formats)
    for (const bool has_zero_group : {false, true}) {
      LinearSpec from_floats, from_codes;
      from_floats.format = QuantFormat::parse(loading);
      for (const std::uint64_t seed : {1U, 2U}) {  // a stack, whose parts meet inside a panel
        const auto w = random_matrix(kN, kK, seed);
        if (has_zero_group) std::fill_n(w->f32() + 128, 64, 0.0F);
        const auto bias = random_matrix(1, kN, seed + 2);
        const WeightEntry bias_entry{"b", bias->view().reshape({kN}), bias, "test"};
        from_floats.add(WeightEntry{"w", w->view(), w, "test"}, bias_entry);
        from_codes.add(quantized(*w, QuantFormat::parse(codec)), bias_entry);
      }
      const auto expected = backend->prepare_linear(from_floats);
      const auto made = backend->prepare_linear(from_codes);
      // A scale of zero may be stored with either sign.
      if (!has_zero_group) expect_same_arrays(*expected, *made, codec);
      expect_same_products(*backend, *expected, *made, codec);
      // A format that is given and is the stored one changes nothing.
      from_codes.format = QuantFormat::parse(codec);
      expect_same_arrays(*made, *backend->prepare_linear(from_codes), codec);
    }
}

// Other codes than the given format's, columns in another order: quantized anew from their exact values.
TEST(LinearSource, ValuesAreQuantizedAnewToAnotherFormat) {
  const auto backend = make_backend();
  const auto w = random_matrix(kN, kK, 1);
  QuantizedSource source = quantized(*w, QuantFormat::parse("int4:g32:asym"));
  for (const bool ordered : {true, false}) {
    if (!ordered)
      for (std::int64_t j = 0; j < kK; ++j) {
        source.group_index.push_back(static_cast<std::int32_t>(j % 7));
        source.permutation.push_back(static_cast<std::int32_t>(kK - 1 - j));
        source.input_scales.push_back(j % 2 == 0 ? 1.0F : 0.5F);
      }
    const auto values = std::make_shared<Tensor>(DType::kF32, Shape{kN, kK});
    for (std::int64_t n = 0; n < kN; ++n) source.load_row(n, values->view().row(n).f32());
    for (const char* format : {"int8", "int4:g32:asym", "int8:g32"}) {
      if (ordered && std::string_view(format) == "int4:g32:asym") continue;  // taken as it is
      LinearSpec from_floats, from_codes;
      from_floats.add(WeightEntry{"w", values->view(), values, "test"});
      from_codes.add(source);
      from_floats.format = from_codes.format = QuantFormat::parse(format);
      expect_same_arrays(*backend->prepare_linear(from_floats), *backend->prepare_linear(from_codes), format);
    }
  }
}

TEST(LinearSource, WhatCannotBeMultipliedIsRefusedByName) {
  const auto backend = make_backend();
  const auto w = random_matrix(kN, kK, 1);
  const auto refusal = [&](LinearSource source, ErrorCode code) -> std::string {
    LinearSpec spec;
    spec.name = "layer";
    spec.add(std::move(source));
    try {
      backend->prepare_linear(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "accepted";
  };
  QuantizedSource source = quantized(*w, QuantFormat::parse("int4:g32"));
  source.group_index.assign(kK, 0);
  EXPECT_THAT(refusal(source, ErrorCode::kUnsupported),
              testing::HasSubstr("stored: the CPU backend does not multiply "
                                 "a quantized matrix with a group index"));
  source = quantized(*w, QuantFormat::parse("int4:g32"));
  source.input_scales.assign(kK, 1);
  EXPECT_THAT(refusal(source, ErrorCode::kUnsupported), testing::HasSubstr("with input scales"));
  EXPECT_THAT(
      refusal(quantized(*w, QuantFormat::parse("fp8")), ErrorCode::kUnsupported),
      testing::HasSubstr("layer: the CPU backend computes with int8, int4 and nf4, not fp8_e4m3:channel"));
  for (const char* format : {"int8:channel:fp32", "int8:g32:fp32"}) {
    QuantizedMatrix matrix = quantize(*w, QuantFormat::parse(format));
    const float infinity = INFINITY;
    std::memcpy(matrix.scales.data(), &infinity, sizeof infinity);
    EXPECT_THAT(refusal(QuantizedSource{.name = "stored",
                                        .matrix = std::make_shared<QuantizedMatrix>(std::move(matrix))},
                        ErrorCode::kInvalidFile),
                testing::HasSubstr("layer: row 0"));
  }
  QuantizedMatrix matrix = quantize(*w, QuantFormat::parse("int4:g32"));
  std::memset(matrix.scales.data() + 2, 0x7e, 2);  // a float16 NaN
  EXPECT_THAT(refusal(QuantizedSource{.name = "stored",
                                      .matrix = std::make_shared<QuantizedMatrix>(std::move(matrix))},
                      ErrorCode::kInvalidFile),
              testing::HasSubstr("layer: row 0, group 1: its scale is nan"));
  EXPECT_THAT(refusal(PackedLinear{.format = QuantFormat::parse("int8"),
                                   .n_out = kN,
                                   .n_in = kK,
                                   .arrays = {},
                                   .layout = "tiles16"},
                      ErrorCode::kUnsupported),
              testing::HasSubstr("layer: it is packed as \"tiles16\"; the CPU backend reads \"panels64\""));
}

}  // namespace
}  // namespace triptych
