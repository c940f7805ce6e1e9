// Every group that a family states: whatever the scales, the model computes the same.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "compress/equalize.h"
#include "engine/engine.h"
#include "engine/load.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "tensor/convert.h"
#include "weights/weight_providers.h"

namespace triptych::compress {
namespace {

std::vector<float> logits_of(LoadedModel& model, const std::filesystem::path& picture) {
  ChatRequest request;
  ChatMessage message;
  message.role = "user";
  message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, "What is it?"}};
  request.messages.push_back(std::move(message));
  MediaInput media;
  media.frames.push_back(
      decode_image(MappedFile::open(picture, DecodeLimits().max_file_bytes)->bytes(), {}, picture.string()));
  request.media.push_back(std::move(media));
  Engine engine(model, {.max_context_tokens = 512, .max_sequences = 1, .kv_cache_dtype = KvDType::kF32});
  const TensorView logits = engine.forward_prompt(model.prepare(request), nullptr);
  return {logits.cf32(), logits.cf32() + logits.numel()};
}

TEST(EqualizationGroups, ScalesChangeNothing) {
  std::size_t n_groups = 0;
  for (const char* family :
       {"llava", "llava_next", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "fuyu"}) {
    SCOPED_TRACE(family);
    const std::filesystem::path directory = std::filesystem::path("tests/data/golden") / family;
    const LoadOptions plain{.n_threads = 1, .weight_dtype = DType::kF32};
    const auto model = LoadedModel::open(directory, plain);
    const auto& groups = model->model().part_sizes().equalization_groups;
    ASSERT_FALSE(groups.empty());
    n_groups += groups.size();
    const std::vector<float> expected = logits_of(*model, "tests/data/golden/llava/a.png");

    Checkpoint source = Checkpoint::open(directory);
    WeightReplacements replaced;
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> power(-3, 3);
    for (const EqualizationGroup& group : groups) {
      std::vector<float> scales(static_cast<std::size_t>(group.n_channels));
      for (float& s : scales) s = std::exp2(power(rng));
      apply_equalization(
          group, scales,
          [&](const std::string& name) {
            const auto found = replaced.tensors.find(name);
            return to_f32(found != replaced.tensors.end() ? found->second->view()
                                                          : source.weights().at(name).view);
          },
          [&](const std::string& name, Tensor value) {
            replaced.tensors[name] = std::make_shared<const Tensor>(std::move(value));
          });
    }
    LoadOptions scaled = plain;
    scaled.replaced_weights = std::make_shared<const WeightReplacements>(std::move(replaced));
    const auto same = LoadedModel::open(directory, scaled);
    const std::vector<float> got = logits_of(*same, "tests/data/golden/llava/a.png");
    ASSERT_EQ(got.size(), expected.size());
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      worst = std::max(worst, std::abs(got[i] - expected[i]));
    }
    EXPECT_LT(worst, 1e-4F * largest);
  }
  EXPECT_GT(n_groups, 50U);
}

}  // namespace
}  // namespace triptych::compress
