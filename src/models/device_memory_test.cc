// Every family computes behind the backend's door: on a backend with a memory of its own, which host code may
// not touch, towers, prompts and decode steps give the bits that they give on the processor's.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backend/testing/fake_device_backend.h"
#include "models/testing/golden_run.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Backend> cpu() {
  return make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
}

Image picture(int width_px, int height_px) {
  Image out{
      width_px, height_px,
      PoolVector<std::uint8_t>(static_cast<std::size_t>(width_px) * static_cast<std::size_t>(height_px) * 3)};
  std::uint32_t state = 1;
  for (std::uint8_t& value : out.rgb)
    value = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  return out;
}

// All logits of a prompt about a picture and of three more tokens, and taps seen on the way.
struct Run {
  std::vector<float> logits;
  std::map<std::string, std::vector<float>> taps;
};

Run run(test::GoldenModel& golden) {
  const Model& model = golden.model();
  const Image image = picture(61, 90);
  std::vector<MediaItem> items(1);
  MediaItem& item = items.front();
  MediaMeta meta;
  meta.width_px = image.width_px;
  meta.height_px = image.height_px;
  item.plan = model.plan_media(meta, {});
  item.pixels = model.preprocess({&image, 1}, item.plan, nullptr);
  if (!model.info().media_text_tokenizer.empty()) item.text_ids = {3, 1, 2};
  const std::int32_t ids[] = {1, model.info().image_token_id, 5, 6, 7};
  const PromptLayout layout = model.expand_prompt(ids, {&item.plan, 1});
  test::TapCopies taps;
  Run out;
  golden.forward_prompt(layout, items, &taps);
  out.taps = std::move(taps.taps);
  out.logits = golden.forward_prompt(layout, items, nullptr);
  for (std::int32_t i = 0; i < 3; ++i) {
    const std::vector<float> next = golden.forward_next(5 + i, layout.next_position + i);
    out.logits.insert(out.logits.end(), next.begin(), next.end());
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns the family.
std::string expect_same(const fs::path& directory) {
  test::GoldenModel here(directory, cpu());
  test::GoldenModel there(directory, std::make_unique<test::FakeDeviceBackend>(cpu()));
  const Run expected = run(here);
  const Run got = run(there);
  EXPECT_TRUE(same_bits(expected.logits, got.logits)) << directory;
  EXPECT_FALSE(expected.taps.empty());
  EXPECT_EQ(expected.taps.size(), got.taps.size());
  for (const auto& [name, values] : expected.taps)
    EXPECT_TRUE(same_bits(values, got.taps.at(name))) << directory << " " << name;
  return here.model().info().family;
}

std::vector<fs::path> directories_in(const fs::path& root) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(root))
    if (fs::exists(entry.path() / "golden.json")) out.push_back(entry.path());
  return out;
}

TEST(DeviceMemory, FamiliesWithReferenceValues) {
  std::set<std::string> seen;
  for (const char* folder : {"tests/data/golden", "tests/data/golden/llava_variants"})
    for (const fs::path& directory : directories_in(test::source_dir() / folder))
      if (directory.filename() !=
          "fuyu")  // its special tokens are named by a tokenizer, which is the engine's
        seen.insert(expect_same(directory));
  seen.insert("fuyu");
  std::set<std::string> registered;
  for (const auto& family : ModelRegistry::global().families()) registered.insert(family.name);
  EXPECT_EQ(seen, registered);
}

}  // namespace
}  // namespace triptych
