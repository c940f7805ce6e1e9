// Engines on a backend with a memory of its own, which host code may not touch: every family answers about a
// picture as on the processor's, from the tower and from the vision-embedding cache, with and without replay.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/testing/fake_device_backend.h"
#include "engine/engine.h"
#include "models/testing/tiny_models.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

std::unique_ptr<Backend> cpu() {
  return make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
}
std::unique_ptr<Backend> device() { return std::make_unique<test::FakeDeviceBackend>(cpu()); }

std::unique_ptr<LoadedModel> make_model(std::string_view family, const char* weights,
                                        std::unique_ptr<Backend> (*backend)()) {
  LoadOptions options;
  options.n_threads = 1;
  options.make_backend = backend;
  if (*weights != 0)
    options.weight_formats.language = options.weight_formats.vision = QuantFormat::parse(weights);
  return LoadedModel::with_random_weights(test::tiny_files(family, test::Geometry::kSmall).config,
                                          DType::kBF16, options);
}

PreparedRequest request_of(const LoadedModel& model) {
  constexpr int kWidth = 61;
  constexpr int kHeight = 90;
  Image image{kWidth, kHeight, PoolVector<std::uint8_t>(std::size_t{kWidth} * kHeight * 3)};
  for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(i * 37);
  MediaMeta meta;
  meta.width_px = kWidth;
  meta.height_px = kHeight;
  MediaItem item;
  item.plan = model.model().plan_media(meta, {});
  item.pixels = model.model().preprocess({&image, 1}, item.plan, nullptr);
  item.fingerprint = {1, 2};
  if (!model.info().media_text_tokenizer.empty()) item.text_ids = {3, 1, 2};
  PreparedRequest out;
  out.token_ids = {model.info().image_token_id, 5, 6, 7};
  out.layout = model.model().expand_prompt(out.token_ids, {&item.plan, 1});
  out.media.push_back(std::move(item));
  return out;
}

struct Answers {
  std::vector<float> logits;  // of a prompt and three tokens
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::int64_t n_replayed = 0;
  std::int64_t n_encoded = 0;
};

Answers answer(LoadedModel& model, bool replay) {
  Engine engine(model,
                {.max_context_tokens = 512, .replay_steps = replay, .vision_embedding_cache_bytes = 1 << 20});
  Answers out;
  const auto take = [&](const TensorView& logits) {
    out.logits.insert(out.logits.end(), logits.cf32(), logits.cf32() + logits.numel());
  };
  take(engine.forward_prompt(request_of(model), nullptr));
  for (const std::int32_t id : {1, 2, 3}) take(engine.forward_next({&id, 1}, nullptr));
  SamplingParams params;
  params.max_tokens = 5;
  params.ignore_eos = true;
  params.n_logprobs = 3;
  for (int i = 0; i < 2; ++i) {
    const GenerationResult result = engine.generate(request_of(model), params);
    out.ids.insert(out.ids.end(), result.token_ids.begin(), result.token_ids.end());
    for (const SampledToken& token : result.tokens)
      for (const TokenLogprob& one : token.top) out.logprobs.push_back(one.logprob);
  }
  out.n_replayed = engine.n_replayed_steps();
  out.n_encoded = engine.n_media_encoded();
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class DeviceMemoryTest : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Families, DeviceMemoryTest, testing::ValuesIn(test::kFamilies),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(DeviceMemoryTest, SameAnswers) {
  for (const char* weights : {"", "int8"}) {
    const auto here = make_model(GetParam(), weights, cpu);
    const auto there = make_model(GetParam(), weights, device);
    const Answers expected = answer(*here, true);
    EXPECT_EQ(expected.ids.size(), 10U);
    for (const bool replay : {true, false}) {
      const Answers got = answer(*there, replay);
      EXPECT_TRUE(same_bits(got.logits, expected.logits)) << weights << " " << replay;
      EXPECT_EQ(got.ids, expected.ids) << weights << " " << replay;
      EXPECT_TRUE(same_bits(got.logprobs, expected.logprobs)) << weights << " " << replay;
      EXPECT_EQ(got.n_encoded, 1) << "later requests find the rows in the cache";
      EXPECT_EQ(got.n_replayed, replay ? expected.n_replayed : 0);
    }
    EXPECT_GT(expected.n_replayed, 4);
  }
}

}  // namespace
}  // namespace triptych
