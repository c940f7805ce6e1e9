// Which changes of a model or a picture make another fingerprint, and which do not.
#include "engine/model_fingerprint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include <nlohmann/json.hpp>

#include "support/source_dir.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = test::source_dir() / "assets/models/scenes-llava";

Fingerprint of(const fs::path& directory, const LoadOptions& options = {.n_threads = 1}) {
  return LoadedModel::open(directory, options)->fingerprint();
}

class ModelFingerprintTest : public testing::Test {
 protected:
  ModelFingerprintTest() {
    std::string name = (fs::temp_directory_path() / "triptych-model-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    copy_ = folder_ / "model";
    fs::copy(kModel, copy_);
    keep_times();
  }
  ~ModelFingerprintTest() override { fs::remove_all(folder_); }
  // As `cp --preserve` does.
  void keep_times() {
    for (const auto& entry : fs::directory_iterator(copy_))
      fs::last_write_time(entry.path(), fs::last_write_time(kModel / entry.path().filename()));
  }
  fs::path folder_, copy_;
};

TEST_F(ModelFingerprintTest, IsThatOfTheSameModelWhereverItLies) {
  EXPECT_EQ(of(copy_), of(copy_));
  EXPECT_EQ(of(copy_), of(kModel));
  EXPECT_EQ(of(copy_, {.n_threads = 2}), of(kModel)) << "threads change no bit";
}

TEST_F(ModelFingerprintTest, ChangesWithAllThatChangesRows) {
  const QuantFormat int8 = QuantFormat::parse("int8");
  std::set<std::string> seen = {to_hex(of(copy_))};
  const auto expect_new = [&](const char* what, const Fingerprint& made) {
    EXPECT_TRUE(seen.insert(to_hex(made)).second) << what;
  };
  expect_new("tower in int8",
             of(copy_, {.n_threads = 1, .weight_formats = {.language = {}, .vision = int8, .lm_head = {}}}));
  expect_new("all in float32", of(copy_, {.n_threads = 1, .weight_dtype = DType::kF32}));
  expect_new("attention of the tower in int8", of(copy_, {.n_threads = 1, .int8_vision_attention = true}));
  expect_new("bfloat16 activations", of(copy_, {.n_threads = 1, .bf16_activations = true}));
  expect_new("batch invariant", of(copy_, {.n_threads = 1, .batch_invariant = true}));
  const auto edit_json = [&](const char* file, const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json json;
    std::ifstream(copy_ / file) >> json;
    edit(json);
    std::ofstream(copy_ / file) << json;
  };
  edit_json("preprocessor_config.json", [](auto& json) { json["image_mean"] = {0.1, 0.2, 0.3}; });
  expect_new("another mean of pixels", of(copy_));
  const fs::path weights = copy_ / "model.safetensors";
  const auto time = fs::last_write_time(weights);
  fs::last_write_time(weights, time + std::chrono::seconds(1));
  expect_new("weights written later", of(copy_));
  fs::last_write_time(weights, time);
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get());
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  fs::last_write_time(weights, time);
  expect_new("another last weight", of(copy_));
}

TEST(MediaFingerprint, IsOfFramesAndPlanUnderTheModel) {
  const Fingerprint model{1, 2, 3, 4};
  MediaInput input;
  input.frames.push_back({2, 2, PoolVector<std::uint8_t>(12, 7)});
  MediaPlan plan;
  plan.meta.width_px = plan.meta.height_px = 2;
  plan.n_tokens = 4;
  const Fingerprint first = media_fingerprint(model, input, plan, "");
  EXPECT_EQ(first, media_fingerprint(model, input, plan, ""));
  EXPECT_EQ(first, media_fingerprint(model, input, plan, "tenant")) << "frames are frames";
  EXPECT_NE(first, media_fingerprint({1, 2, 3, 5}, input, plan, ""));
  MediaPlan larger = plan;
  larger.resized_width_px = 28;
  EXPECT_NE(first, media_fingerprint(model, input, larger, ""));
  MediaInput twice = input;
  twice.frames.push_back(input.frames[0]);
  EXPECT_NE(first, media_fingerprint(model, twice, plan, ""));
  MediaInput other = input;
  other.frames[0].rgb[11] = 8;
  EXPECT_NE(first, media_fingerprint(model, other, plan, ""));
}

// A name stands for a picture among the requests of one tenant only, and never for another's frames.
TEST(MediaFingerprint, OfAClientsNameIsItsTenants) {
  const Fingerprint model{1, 2, 3, 4};
  MediaPlan plan;
  MediaInput named, same_name, by_frames;
  named.frames.push_back({1, 1, PoolVector<std::uint8_t>(3, 1)});
  named.client_id = "photo-1";
  same_name.frames.push_back({1, 1, PoolVector<std::uint8_t>(3, 2)});
  same_name.client_id = "photo-1";
  by_frames.frames = named.frames;
  const Fingerprint of_a = media_fingerprint(model, named, plan, "a");
  EXPECT_EQ(of_a, media_fingerprint(model, same_name, plan, "a"));
  EXPECT_NE(of_a, media_fingerprint(model, named, plan, "b"));
  EXPECT_NE(of_a, media_fingerprint(model, named, plan, ""));
  EXPECT_NE(of_a, media_fingerprint(model, by_frames, plan, "a"));
}

}  // namespace
}  // namespace triptych
