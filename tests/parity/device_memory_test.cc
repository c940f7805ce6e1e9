// The models that ship, and those with reference values: a picture and an answer on a backend whose memory
// host code may not touch, to the bits of the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/testing/fake_device_backend.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "parity/chat_messages.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

std::unique_ptr<Backend> cpu() {
  return make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
}
std::unique_ptr<Backend> device() { return std::make_unique<test::FakeDeviceBackend>(cpu()); }

// Logits of the prompt and of six more tokens.
std::vector<float> answer(const std::filesystem::path& directory, std::unique_ptr<Backend> (*backend)()) {
  LoadOptions options;
  options.n_threads = 1;
  options.make_backend = backend;
  const auto model = LoadedModel::open(directory, options);
  const auto file = MappedFile::open(test::source_path("assets/eval/scenes/0000.png"));
  ChatRequest request;
  request.messages.push_back(test::say("user", {test::kPicture, test::words("Describe the image.")}));
  request.media.emplace_back().frames.push_back(decode_image(file->bytes(), {}, "0000.png"));
  Engine engine(*model);
  std::vector<float> out;
  const auto take = [&](const TensorView& logits) {
    out.insert(out.end(), logits.cf32(), logits.cf32() + logits.numel());
  };
  take(engine.forward_prompt(model->prepare(request), nullptr));
  for (std::int32_t id = 5; id < 11; ++id) take(engine.forward_next(id, nullptr));
  EXPECT_EQ(engine.n_replayed_steps(), 5);
  return out;
}

void expect_same(const std::filesystem::path& directory) {
  const std::vector<float> expected = answer(directory, cpu);
  const std::vector<float> got = answer(directory, device);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

class DeviceMemory : public testing::TestWithParam<const char*> {};
TEST_P(DeviceMemory, SameLogits) { expect_same(test::source_path(GetParam())); }

std::string last_part(const char* path) {
  std::string out = std::filesystem::path(path).filename().string();
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

INSTANTIATE_TEST_SUITE_P(Own, DeviceMemory,
                         testing::Values("assets/models/scenes-llava", "assets/models/scenes-qwen2-vl",
                                         "tests/data/golden/llava", "tests/data/golden/llava_next",
                                         "tests/data/golden/qwen2_vl", "tests/data/golden/qwen2_5_vl",
                                         "tests/data/golden/qwen3_vl", "tests/data/golden/fuyu",
                                         "tests/data/golden/blip2", "tests/data/golden/instructblip",
                                         "tests/data/golden/llava_onevision"),
                         [](const auto& at) { return last_part(at.param); });

class SharedDeviceMemory : public testing::TestWithParam<const char*> {};
TEST_P(SharedDeviceMemory, SameLogits) {
  TRIPTYCH_SHARED_OR_SKIP(directory, std::string("golden/models/") + GetParam());
  expect_same(directory);
}
INSTANTIATE_TEST_SUITE_P(Shared, SharedDeviceMemory,
                         testing::Values("llava", "llava_next", "llava_onevision", "qwen_vl", "qwen2_vl",
                                         "qwen2_5_vl", "qwen3_vl", "fuyu", "blip2", "instructblip"),
                         [](const auto& at) { return std::string(at.param); });

}  // namespace
}  // namespace triptych
