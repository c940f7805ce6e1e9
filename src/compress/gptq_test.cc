// Rounding with feedback against rounding to nearest, and against an exhaustive search.
#include "compress/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"

namespace triptych::compress {
namespace {

Tensor random_matrix(std::int64_t n, std::int64_t k, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor out(DType::kF32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) out.f32()[i] = normal(rng);
  return out;
}

// Rows whose channels depend on each other, as those of a model do.
Tensor mixed_inputs(std::int64_t t, std::int64_t k, unsigned seed) {
  const Tensor hidden = random_matrix(t, k / 4, seed);
  const Tensor mix = random_matrix(k / 4, k, seed + 1);
  Tensor out = random_matrix(t, k, seed + 2);
  for (std::int64_t i = 0; i < t; ++i)
    for (std::int64_t j = 0; j < k; ++j) {
      float sum = 0.1F * out.f32()[i * k + j];
      for (std::int64_t h = 0; h < k / 4; ++h) sum += hidden.f32()[i * (k / 4) + h] * mix.f32()[h * k + j];
      out.f32()[i * k + j] = sum;
    }
  return out;
}

class Gptq : public ::testing::Test {
 protected:
  ThreadPool pool_{2};

  Gram gram_of(const Tensor& x) {
    Gram out(x.view().dim(1));
    out.add(x.view(), {}, pool_);
    return out;
  }
  double error_of(const TensorView& w, const QuantizedMatrix& q, const Gram& h) {
    return output_error(w, dequantize(q).view(), h, pool_);
  }
};

TEST_F(Gptq, TheGramMatrixIsTheSumOfOuterProducts) {
  const Tensor x = random_matrix(37, 19, 1);
  std::vector<float> weights(37);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5F + static_cast<float>(i % 3);
  Gram h(19);
  h.add(x.view(), weights, pool_);
  for (std::int64_t i = 0; i < 19; ++i)
    for (std::int64_t j = 0; j < 19; ++j) {
      double sum = 0;
      for (std::int64_t t = 0; t < 37; ++t)
        sum += static_cast<double>(weights[static_cast<std::size_t>(t)]) *
               static_cast<double>(x.f32()[t * 19 + i]) * static_cast<double>(x.f32()[t * 19 + j]);
      EXPECT_NEAR(h.at(i, j), sum, 1e-4) << i << "," << j;
    }
}

TEST_F(Gptq, OutputErrorIsThatOfTheOutputs) {
  const Tensor x = mixed_inputs(50, 16, 3);
  const Tensor w = random_matrix(5, 16, 9), q = random_matrix(5, 16, 10);
  double sum = 0;
  for (std::int64_t t = 0; t < 50; ++t)
    for (std::int64_t n = 0; n < 5; ++n) {
      double y = 0;
      for (std::int64_t k = 0; k < 16; ++k)
        y += (static_cast<double>(w.f32()[n * 16 + k]) - static_cast<double>(q.f32()[n * 16 + k])) *
             static_cast<double>(x.f32()[t * 16 + k]);
      sum += y * y;
    }
  EXPECT_NEAR(output_error(w.view(), q.view(), gram_of(x), pool_) / sum, 1.0, 1e-5);
}

TEST_F(Gptq, LosesFarLessThanRoundingToNearest) {
  const Tensor x = mixed_inputs(400, 128, 5);
  const Gram h = gram_of(x);
  const Tensor w = random_matrix(48, 128, 7);
  for (const char* name : {"int4:g32", "int4:g128:asym", "int4:channel", "nf4:g64", "int8"}) {
    const QuantFormat format = QuantFormat::parse(name);
    const double nearest = error_of(w.view(), quantize(w.view(), format), h);
    const double fed_back = error_of(w.view(), gptq(w.view(), h, format, {}, pool_), h);
    EXPECT_LT(fed_back, 0.5 * nearest) << name;
  }
}

// Where inputs do not depend on each other there is nothing to make up for.
TEST_F(Gptq, IsRoundingToNearestForIndependentInputs) {
  Gram h(32);
  const Tensor unit = [] {
    Tensor out = Tensor::zeros(DType::kF32, {32, 32});
    for (std::int64_t i = 0; i < 32; ++i) out.f32()[i * 32 + i] = 1.0F + static_cast<float>(i);
    return out;
  }();
  h.add(unit.view(), {}, pool_);
  const Tensor w = random_matrix(8, 32, 11);
  const QuantFormat format = QuantFormat::parse("int4:g32");
  const QuantizedMatrix nearest = quantize(w.view(), format), fed_back = gptq(w.view(), h, format, {}, pool_);
  for (std::int64_t row = 0; row < 8; ++row)
    for (std::int64_t col = 0; col < 32; ++col) EXPECT_EQ(nearest.code(row, col), fed_back.code(row, col));
}

// The first step of the sum of terms: with two columns the second makes up for the first exactly as the best
// code does.
TEST_F(Gptq, TheSecondOfTwoColumnsTakesTheBestCode) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Gram h = gram_of(mixed_inputs(30, 4, 100 + seed));
    const Tensor w = random_matrix(1, 4, 200 + seed);
    const QuantFormat format = QuantFormat::parse("int4:channel");
    QuantizedMatrix q = gptq(w.view(), h, format, {.damping = 1e-7}, pool_);
    std::int64_t last = 0;  // the column with the smallest inputs is rounded last
    for (std::int64_t i = 1; i < 4; ++i)
      if (h.at(i, i) < h.at(last, last)) last = i;
    const double made = error_of(w.view(), q, h);
    for (int code = -8; code <= 7; ++code) {
      q.set_nearest(0, last, static_cast<float>(code) * q.scale(0, last));
      EXPECT_GE(error_of(w.view(), q, h), made * (1 - 1e-4)) << seed << " " << code;
    }
  }
}

TEST_F(Gptq, MomentsWithoutFullRankAreDampedUntilTheyFactor) {
  const Tensor x = random_matrix(3, 64, 13);  // rank 3
  const Tensor w = random_matrix(4, 64, 14);
  GptqReport report;
  const QuantizedMatrix q =
      gptq(w.view(), gram_of(x), QuantFormat::parse("int4:g32"), {.damping = 1e-16}, pool_, &report);
  EXPECT_GT(report.damping, 1e-16);
  EXPECT_TRUE(std::isfinite(error_of(w.view(), q, gram_of(x))));
  const Gram nothing(64);
  EXPECT_NO_THROW(gptq(w.view(), nothing, QuantFormat::parse("int4:g32"), {}, pool_));
}

TEST_F(Gptq, DoesNotDependOnTheThreads) {
  const Gram h = gram_of(mixed_inputs(100, 64, 15));
  const Tensor w = random_matrix(70, 64, 16);
  ThreadPool one(1);
  const QuantFormat format = QuantFormat::parse("int4:g32");
  const QuantizedMatrix a = gptq(w.view(), h, format, {}, pool_), b = gptq(w.view(), h, format, {}, one);
  EXPECT_EQ(std::vector<std::byte>(a.codes.data(), a.codes.data() + a.codes.size_bytes()),
            std::vector<std::byte>(b.codes.data(), b.codes.data() + b.codes.size_bytes()));
}

TEST_F(Gptq, TwoLevelFormatsAreRefused) {
  const Tensor w = random_matrix(4, 64, 17);
  EXPECT_THROW(gptq(w.view(), gram_of(w), QuantFormat::parse("int4:g32:two-level"), {}, pool_), Error);
}

}  // namespace
}  // namespace triptych::compress
