#include "compress/equalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tensor/quant_codec.h"

namespace triptych::compress {
namespace {

constexpr std::int64_t kIn = 32, kOut = 24;

Tensor random_matrix(std::int64_t n, std::int64_t k, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor out(DType::kF32, {n, k});
  for (std::int64_t i = 0; i < n * k; ++i) out.f32()[i] = normal(rng);
  return out;
}

// Inputs with a few channels 32 times as large as the others, and weights that read them 32 times as small.
struct Outliers {
  Tensor x = random_matrix(200, kIn, 1);
  Tensor w = random_matrix(kOut, kIn, 2);
  ChannelMoments moments;

  Outliers() {
    for (const std::int64_t c : {3, 17, 18}) {
      for (std::int64_t t = 0; t < 200; ++t) x.f32()[t * kIn + c] *= 32;
      for (std::int64_t n = 0; n < kOut; ++n) w.f32()[n * kIn + c] /= 32;
    }
    moments.add(x.view(), {});
    moments.finish();
  }
};

TEST(Equalize, UndoesOutlierChannels) {
  const Outliers data;
  const TensorView w = data.w.view();
  const Reader reader{.matrix = &w, .format = QuantFormat::parse("int4:g32"), .inputs = &data.moments};
  const EqualizationGroup group{.writers = {}, .readers = {"w"}, .n_channels = kIn};
  const Equalization found = find_equalization(group, {reader});
  EXPECT_LT(found.error_after, 0.1 * found.error_before);
  double sum = 0;
  for (const float s : found.scales) sum += std::log(static_cast<double>(s));
  EXPECT_NEAR(sum, 0, 1e-3) << "no scale is made or lost on the whole";
  EXPECT_GT(found.scales[3], 8 * found.scales[4]);
}

TEST(Equalize, LeavesEvenChannelsAlone) {
  const Tensor w = random_matrix(kOut, kIn, 5);
  ChannelMoments moments;
  // Inputs and weights of one size: any scale only costs.
  Tensor x(DType::kF32, {8, kIn});
  for (std::int64_t i = 0; i < 8 * kIn; ++i) x.f32()[i] = i % 2 == 0 ? 1.0F : -1.0F;
  moments.add(x.view(), {});
  moments.finish();
  Tensor even(DType::kF32, {kOut, kIn});
  for (std::int64_t i = 0; i < kOut * kIn; ++i) even.f32()[i] = i % 3 == 0 ? 1.0F : -1.0F;
  const TensorView v = even.view();
  const Equalization found =
      find_equalization({.writers = {}, .readers = {"w"}, .n_channels = kIn},
                        {{.matrix = &v, .format = QuantFormat::parse("int8"), .inputs = &moments}});
  for (const float s : found.scales) EXPECT_NEAR(s, 1.0F, 1e-5F);
}

// What is read through scaled channels is what was read before, for heads that serve several, too.
TEST(Equalize, TheProductStaysTheSame) {
  constexpr std::int64_t kHeads = 2, kWidth = 4, kRepeat = 3, kChannels = kHeads * kWidth;
  const EqualizationGroup group{.writers = {{"v.weight", 5}, {"v.bias", 5}},
                                .readers = {"o.weight"},
                                .n_channels = kChannels,
                                .run = kWidth,
                                .repeat = kRepeat};
  EXPECT_EQ(group.channel_of(0), 0);
  EXPECT_EQ(group.channel_of(kWidth), 0) << "the second of the queries that the first head serves";
  EXPECT_EQ(group.channel_of(kWidth * kRepeat + 1), kWidth + 1);
  std::map<std::string, Tensor> tensors;
  tensors.emplace("v.weight", random_matrix(5 + kChannels, 6, 7));
  Tensor bias = random_matrix(1, 5 + kChannels, 8);
  tensors.emplace("v.bias", Tensor::copy_of(bias.view().reshape({5 + kChannels})));
  tensors.emplace("o.weight", random_matrix(3, kChannels * kRepeat, 9));
  const auto value_of = [&](const std::string& name) { return Tensor::copy_of(tensors.at(name).view()); };
  std::vector<float> scales(kChannels);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = std::exp2(static_cast<float>(i) - 3.0F);
  std::map<std::string, Tensor> to;
  apply_equalization(group, scales, value_of, [&](const std::string& name, Tensor value) {
    to.insert_or_assign(name, std::move(value));
  });

  const Tensor x = random_matrix(1, 6, 10);
  const auto output = [&](const auto& tensor_of, std::int64_t n) {
    double y = 0;
    for (std::int64_t k = 0; k < kChannels * kRepeat; ++k) {
      const std::int64_t c = group.channel_of(k);
      double v = static_cast<double>(tensor_of("v.bias").cf32()[5 + c]);
      for (std::int64_t i = 0; i < 6; ++i)
        v += static_cast<double>(tensor_of("v.weight").cf32()[(5 + c) * 6 + i]) *
             static_cast<double>(x.f32()[i]);
      y += v * static_cast<double>(tensor_of("o.weight").cf32()[n * kChannels * kRepeat + k]);
    }
    return y;
  };
  for (std::int64_t n = 0; n < 3; ++n)
    EXPECT_NEAR(output([&](const char* name) { return to.at(name).view(); }, n),
                output([&](const char* name) { return tensors.at(name).view(); }, n), 1e-4);
  // Rows before the group's first are not touched.
  for (std::int64_t i = 0; i < 5 * 6; ++i)
    EXPECT_EQ(to.at("v.weight").view().cf32()[i], tensors.at("v.weight").f32()[i]);
}

}  // namespace
}  // namespace triptych::compress
