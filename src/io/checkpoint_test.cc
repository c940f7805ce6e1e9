#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "io/mapped_file.h"
#include "io/test_files.h"
#include "support/shared_dir.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::one_tensor;
using test::OpenWatch;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kIndex = "model.safetensors.index.json";
const std::string kShard1 = "model-00001-of-00002.safetensors";
const std::string kShard2 = "model-00002-of-00002.safetensors";

std::string index_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  Json map = Json::object();
  for (const auto& [tensor, file] : entries) map[tensor] = file;
  return Json{{"metadata", {{"total_size", 8}}}, {"weight_map", map}}.dump();
}

// A sound two-shard checkpoint with the tensors a and b; `quantized` has GPTQ's names and config instead.
void write_two_shards(const TempDir& dir, const std::string& a = "a", const std::string& b = "b") {
  dir.write("config.json", a == "a" ? "{\"model_type\":\"llava\"}"
                                    : "{\"quantization_config\":{\"quant_method\":\"gptq\"}}");
  dir.write(kShard1, one_tensor(a, 1));
  dir.write(kShard2, one_tensor(b, 2));
  dir.write(kIndex, index_of({{a, kShard1}, {b, kShard2}}));
}

// The reference loads an adapter that lies beside the weights; without it the answers are the base model's.
TEST(Checkpoint, AdaptersAreRefused) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"})
    for (const bool with_weights : {true, false}) {
      const TempDir dir;
      if (with_weights) write_two_shards(dir);
      dir.write(name, "{}");
      EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }, ErrorCode::kUnsupported),
                  AllOf(HasSubstr(name), HasSubstr("adapters are not applied")));
    }
}

class Case14 : public testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  void SetUp() override { write_two_shards(dir_, a_, b_); }
  std::string refusal(ErrorCode code) {
    return error_of([&] { Checkpoint::open(dir_.path()); }, code);
  }
  const std::string a_ = GetParam().first;
  const std::string b_ = GetParam().second;
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(PlainAndGptq, Case14,
                         testing::Values(std::pair("a", "b"), std::pair("q_proj.qweight", "q_proj.scales")));

TEST_P(Case14, WholeCheckpointLoads) {
  const Checkpoint checkpoint = Checkpoint::open(dir_.path());
  EXPECT_THAT(checkpoint.weight_files(), ElementsAre(kShard1, kShard2));
  ASSERT_EQ(checkpoint.weights().size(), 2u);
  EXPECT_EQ(checkpoint.weights().at(b_).view.cf32()[0], 2);
  EXPECT_EQ(checkpoint.weights().at(b_).file, kShard2);
}

TEST_P(Case14, MissingShardsAreAllListed) {
  fs::remove(dir_ / kShard2);
  EXPECT_THAT(refusal(ErrorCode::kNotFound),
              AllOf(HasSubstr("1 of 2"), HasSubstr(kShard2), Not(HasSubstr(kShard1))));
  fs::remove(dir_ / kShard1);
  EXPECT_THAT(refusal(ErrorCode::kNotFound),
              AllOf(HasSubstr("2 of 2"), HasSubstr(kShard1), HasSubstr(kShard2)));
}

TEST_P(Case14, IndexNamesATensorThatIsNotInItsShard) {
  dir_.write(kIndex,
             index_of({{a_, kShard1}, {b_, kShard2}, {"lost.weight", kShard2}, {"lost.bias", kShard1}}));
  EXPECT_THAT(refusal(ErrorCode::kInvalidFile),
              AllOf(HasSubstr("lost.weight"), HasSubstr("lost.bias"), Not(HasSubstr(b_ + "\""))));
  dir_.write(kIndex, index_of({{a_, kShard2}, {b_, kShard1}}));  // both, in the other file
  EXPECT_THAT(refusal(ErrorCode::kInvalidFile), HasSubstr("2 tensors"));
}

TEST_P(Case14, TensorsThatTheIndexDoesNotListAreLeftOutWithAWarning) {
  dir_.write(kIndex, index_of({{a_, kShard1}}));
  testing::internal::CaptureStderr();
  const Checkpoint one = Checkpoint::open(dir_.path());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // the second file is simply not part of it
  EXPECT_EQ(one.weights().size(), 1u);
  dir_.write(kShard1, test::safetensors(
                          "{\"" + a_ +
                              "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                              "\"extra.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                          test::floats({1, 2})));
  testing::internal::CaptureStderr();
  const Checkpoint two = Checkpoint::open(dir_.path());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("extra.weight"));
  EXPECT_EQ(two.weights().size(), 1u);
  EXPECT_FALSE(two.weights().contains("extra.weight"));
}

TEST_P(Case14, IndexAbsent) {
  fs::remove(dir_ / kIndex);
  EXPECT_THAT(refusal(ErrorCode::kNotFound),
              AllOf(HasSubstr(kShard1), HasSubstr(kShard2), HasSubstr(kIndex)));
  fs::remove(dir_ / kShard2);  // one piece alone is no checkpoint either
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr(kShard1));
}

TEST_P(Case14, StrayFileBesideTheIndexIsIgnored) {
  dir_.write("model.safetensors", "rubbish");
  dir_.write("pytorch_model.bin", "rubbish");
  dir_.write("consolidated.safetensors", "rubbish");
  EXPECT_EQ(Checkpoint::open(dir_.path()).weights().size(), 2u);
}

TEST_P(Case14, BrokenIndex) {
  for (const char* text :
       {"", "not json", "{", "[]", "null", "{}", "{\"weight_map\":null}", "{\"weight_map\":[]}",
        "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{\"a\":[\"x\"]}}", "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}"}) {
    dir_.write(kIndex, text);
    EXPECT_THAT(refusal(ErrorCode::kInvalidFile), HasSubstr(kIndex)) << text;
  }
}

TEST_P(Case14, CutShard) {
  const std::string whole = read_text_file(dir_ / kShard2);
  for (const std::size_t n : {std::size_t{0}, std::size_t{7}, std::size_t{20}, whole.size() - 1}) {
    dir_.write(kShard2, whole.substr(0, n));
    EXPECT_THAT(refusal(ErrorCode::kInvalidFile), HasSubstr(kShard2));
  }
}

TEST_P(Case14, NoWeights) {
  for (const std::string& name : {std::string(kIndex), kShard1, kShard2}) fs::remove(dir_ / name);
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("no weights"));
  CheckpointOptions options;
  options.load_weights = false;
  EXPECT_TRUE(Checkpoint::open(dir_.path(), options).weights().empty());
}

TEST_P(Case14, FolderWhoseNameEndsInSafetensors) {
  for (const std::string& name : {std::string(kIndex), kShard1, kShard2}) fs::remove(dir_ / name);
  fs::create_directory(dir_ / "weights.safetensors");
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("no weights"));
  fs::create_directory(dir_ / "model.safetensors");
  EXPECT_THAT(refusal(ErrorCode::kInvalidFile),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("regular file")));
  fs::remove(dir_ / "model.safetensors");
  dir_.write(kShard1, one_tensor(a_));
  fs::create_directory(dir_ / kShard2);
  dir_.write(kIndex, index_of({{a_, kShard1}, {b_, kShard2}}));
  EXPECT_THAT(refusal(ErrorCode::kInvalidFile), HasSubstr(kShard2));
}

TEST(Checkpoint, Layouts) {
  const TempDir dir;
  dir.write("config.json", "{\"model_type\":\"x\",\"hidden_size\":8}");
  const std::string torch = read_text_file(test::source_dir() / "tests/data/torch/protocol4.bin");
  const std::string torch_shard = "pytorch_model-00001-of-00001.bin";
  // Weakest first; each of the later ones is preferred to those before it.
  dir.write("any.safetensors", one_tensor("any"));
  EXPECT_TRUE(Checkpoint::open(dir.path()).weights().contains("any"));
  dir.write("pytorch_model.bin", torch);
  EXPECT_TRUE(Checkpoint::open(dir.path()).weights().contains("w"));
  dir.write(torch_shard, torch);
  dir.write("pytorch_model.bin.index.json", index_of({{"w", torch_shard}}));
  EXPECT_THAT(Checkpoint::open(dir.path()).weight_files(), ElementsAre(torch_shard));
  dir.write("model.safetensors", one_tensor("single"));
  EXPECT_TRUE(Checkpoint::open(dir.path()).weights().contains("single"));
  dir.write(kIndex, index_of({{"any", "any.safetensors"}}));
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_THAT(checkpoint.weight_files(), ElementsAre("any.safetensors"));
  EXPECT_EQ(checkpoint.config_view().at("hidden_size").as_int(), 8);
}

TEST(Checkpoint, OtherSingleFiles) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("model-00001-of-00001.safetensors", one_tensor("w"));
  EXPECT_EQ(Checkpoint::open(dir.path()).weights().size(), 1u);
  fs::rename(dir / "model-00001-of-00001.safetensors", dir / "model-00001-of-00005.safetensors");
  error_of([&] { Checkpoint::open(dir.path()); }, ErrorCode::kNotFound);
  fs::rename(dir / "model-00001-of-00005.safetensors", dir / "pytorch_model-00002-of-00010.bin");
  error_of([&] { Checkpoint::open(dir.path()); }, ErrorCode::kNotFound);
  fs::remove(dir / "pytorch_model-00002-of-00010.bin");
  dir.write("one.safetensors", one_tensor("w"));
  EXPECT_EQ(Checkpoint::open(dir.path()).weights().size(), 1u);
  dir.write("two.safetensors", one_tensor("v"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }),
              AllOf(HasSubstr("one.safetensors"), HasSubstr("two.safetensors")));
}

TEST(Checkpoint, SameTensorInTwoShardsIsTakenFromTheOneTheIndexNames) {
  const TempDir dir;
  write_two_shards(dir);
  dir.write(kShard2, test::safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                       "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                                       test::floats({77, 2})));
  testing::internal::CaptureStderr();
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(checkpoint.weights().at("a").view.cf32()[0], 1);
  EXPECT_EQ(checkpoint.weights().size(), 2u);
}

TEST(Checkpoint, ConfigErrors) {
  const TempDir dir;
  EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }, ErrorCode::kNotFound),
              HasSubstr("config.json"));
  for (const char* bad : {"", "[]", "3", "{", "null"}) {
    dir.write("config.json", bad);
    EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }), HasSubstr("config.json")) << bad;
  }
  error_of([&] { Checkpoint::open(dir / "absent"); }, ErrorCode::kNotFound);
  error_of([&] { Checkpoint::open(dir / "config.json"); }, ErrorCode::kInvalidArgument);
}

// ---- Case 25: a model folder must not make the loader open files outside it.

const std::vector<std::string> kBadNames{"../x.safetensors",
                                         "/etc/passwd",
                                         "a/../../x",
                                         "..\\x",
                                         std::string("x\0.safetensors", 14),
                                         "",
                                         ".",
                                         "..",
                                         "sub/x.safetensors",
                                         "./x.safetensors",
                                         "x\n.safetensors",
                                         "a\x7f",
                                         std::string(300, 'n')};

class Case25 : public testing::Test {
 protected:
  void SetUp() override {
    write_two_shards(inside_);
    secret_ = outside_.write("secret.safetensors", one_tensor("b", 99));
    ASSERT_EQ(::mkfifo((outside_ / "fifo").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((inside_ / "fifo").c_str(), 0600), 0);
    fs::create_directory(inside_ / "folder");
    inside_.write("folder/inner.safetensors", one_tensor("b", 3));
    fs::create_symlink(secret_, inside_ / "link_out");
    fs::create_symlink(outside_ / "fifo", inside_ / "link_fifo");
    fs::create_symlink("/dev/zero", inside_ / "link_device");
    fs::create_symlink(outside_.path(), inside_ / "link_folder");
    fs::create_symlink("../" + outside_.path().filename().string() + "/secret.safetensors",
                       inside_ / "link_relative");
    fs::create_symlink("link_out", inside_ / "link_link");
    fs::create_symlink("loop", inside_ / "loop");
    fs::create_symlink(kShard2, inside_ / "link_in");
    fs::create_symlink("folder/inner.safetensors", inside_ / "link_deeper");
    fs::create_symlink("absent", inside_ / "dangling");
  }
  TempDir inside_;
  TempDir outside_;
  fs::path secret_;
};

const std::vector<std::string> kBadFiles{"fifo",          "folder",      "link_out",
                                         "link_fifo",     "link_device", "link_folder",
                                         "link_relative", "link_link",   "loop"};

TEST_F(Case25, WatchSeesOpens) {  // the method itself
  const OpenWatch watch(secret_);
  EXPECT_FALSE(watch.saw_open());
  read_text_file(secret_);
  EXPECT_TRUE(watch.saw_open());
}

TEST_F(Case25, WeightMapNamesOnlyPlainFiles) {
  const OpenWatch watch(secret_);
  for (const std::string& name : kBadNames) {
    inside_.write(kIndex, index_of({{"a", kShard1}, {"b", name}}));
    EXPECT_THAT(error_of([&] { Checkpoint::open(inside_.path()); }),
                AllOf(HasSubstr(kIndex), HasSubstr("\"b\"")))
        << name;
  }
  for (const std::string& name : kBadFiles) {
    inside_.write(kIndex, index_of({{"a", kShard1}, {"b", name}}));
    EXPECT_THAT(error_of([&] { Checkpoint::open(inside_.path()); }), HasSubstr(name));
  }
  inside_.write(kIndex, index_of({{"a", kShard1}, {"b", "dangling"}}));
  EXPECT_THAT(error_of([&] { Checkpoint::open(inside_.path()); }, ErrorCode::kNotFound),
              HasSubstr("dangling"));
  EXPECT_FALSE(watch.saw_open());
}

TEST_F(Case25, LinksThatStayInsideWork) {
  inside_.write(kIndex, index_of({{"a", kShard1}, {"b", "link_in"}}));
  EXPECT_EQ(Checkpoint::open(inside_.path()).weights().at("b").view.cf32()[0], 2);
}

TEST_F(Case25, OtherFilesThatAConfigMayName) {
  const Checkpoint checkpoint = Checkpoint::open(inside_.path());
  const OpenWatch watch(secret_);
  for (const std::string& name : kBadNames) {
    EXPECT_THROW(checkpoint.file(name), Error) << name;
    EXPECT_THROW(checkpoint.text_file(name), Error) << name;
    EXPECT_THROW(checkpoint.json_file(name), Error) << name;
  }
  for (const std::string& name : kBadFiles) {
    EXPECT_THAT(error_of([&] { checkpoint.text_file(name); }), HasSubstr(name));
    EXPECT_THAT(error_of([&] { checkpoint.json_file(name); }), HasSubstr(name));
  }
  EXPECT_FALSE(watch.saw_open());
  EXPECT_FALSE(checkpoint.file("absent.json"));
  EXPECT_FALSE(checkpoint.text_file("dangling"));
  EXPECT_FALSE(checkpoint.json_file("absent.json"));
  EXPECT_EQ(checkpoint.json_file("config.json")->at("model_type"), "llava");
  EXPECT_EQ(checkpoint.file("link_deeper")->filename(), "inner.safetensors");
}

TEST_F(Case25, TheUsualNamesThemselvesMayBeLinks) {
  const OpenWatch watch(secret_);
  for (const char* name :
       {"config.json", "model.safetensors", "pytorch_model.bin", kIndex, "only.safetensors"}) {
    const TempDir dir;
    if (std::string(name) != "config.json") dir.write("config.json", "{}");
    fs::create_symlink(secret_, dir / name);
    EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }), AllOf(HasSubstr(name), HasSubstr("link")))
        << name;
    fs::remove(dir / name);
    ASSERT_EQ(::mkfifo((dir / name).c_str(), 0600), 0);
    EXPECT_THAT(error_of([&] { Checkpoint::open(dir.path()); }), HasSubstr(name)) << name;
  }
  EXPECT_FALSE(watch.saw_open());
}

TEST_F(Case25, LinkOptions) {
  inside_.write(kIndex, index_of({{"a", kShard1}, {"b", "link_relative"}}));
  CheckpointOptions options;
  options.links = LinkPolicy::kAllowAll;
  EXPECT_EQ(Checkpoint::open(inside_.path(), options).weights().at("b").view.cf32()[0], 99);
  // Even then: no device, no FIFO.
  for (const char* name : {"link_device", "link_fifo", "link_folder"}) {
    inside_.write(kIndex, index_of({{"a", kShard1}, {"b", name}}));
    EXPECT_THAT(error_of([&] { Checkpoint::open(inside_.path(), options); }), HasSubstr(name));
  }
}

// The standard cache: <repo>/snapshots/<revision>/<name> -> ../../blobs/<hash>.
TEST_F(Case25, HubCache) {
  const TempDir cache;
  cache.write("models--x--y/blobs/aaa", "{\"model_type\":\"llava\"}");
  cache.write("models--x--y/blobs/bbb", one_tensor("w", 5));
  cache.write("models--x--y/refs/main", "rev1");
  cache.write("models--x--y/secret", one_tensor("w", 66));
  cache.write("models--x--y/blobs/sub/ccc", one_tensor("w", 67));
  cache.write("models--x--z/blobs/bbb", one_tensor("w", 68));
  const fs::path snapshot = cache / "models--x--y/snapshots/rev1";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/aaa", snapshot / "config.json");
  fs::create_symlink("../../blobs/bbb", snapshot / "model.safetensors");
  EXPECT_EQ(Checkpoint::open(snapshot).weights().at("w").view.cf32()[0], 5);
  EXPECT_EQ(Checkpoint::open(snapshot).weights().at("w").file, "model.safetensors");
  fs::create_directory_symlink(snapshot, cache / "current");  // the folder itself may be reached by a link
  EXPECT_EQ(Checkpoint::open(cache / "current").weights().size(), 1u);

  CheckpointOptions inside_only;
  inside_only.links = LinkPolicy::kInsideOnly;
  error_of([&] { Checkpoint::open(snapshot, inside_only); });
  // Only the blobs of the same repository, and only files directly in it.
  for (const char* target : {"../../secret", "../../../models--x--z/blobs/bbb", "../../blobs/sub/ccc"}) {
    fs::remove(snapshot / "model.safetensors");
    fs::create_symlink(target, snapshot / "model.safetensors");
    EXPECT_THAT(error_of([&] { Checkpoint::open(snapshot); }), HasSubstr("leads out")) << target;
  }
  // A blob that was never downloaded.
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../blobs/ddd", snapshot / "model.safetensors");
  error_of([&] { Checkpoint::open(snapshot); }, ErrorCode::kNotFound);
}

TEST(IsPlainFileName, Rules) {
  for (const std::string& name : kBadNames) EXPECT_FALSE(is_plain_file_name(name)) << name;
  for (const char* name :
       {"model.safetensors", "a", "...", "..a", ".hidden", "with space", "caf\xc3\xa9.json", "a:b"})
    EXPECT_TRUE(is_plain_file_name(name)) << name;
}

// ---- Published layouts.

TEST(Checkpoint, OpensTheReferenceModels) {
  TRIPTYCH_SHARED_OR_SKIP(models, "golden/models");
  int n_models = 0;
  for (const auto& entry : fs::directory_iterator(models)) {
    const Checkpoint checkpoint = Checkpoint::open(entry.path());
    EXPECT_FALSE(checkpoint.weights().empty()) << entry.path();
    EXPECT_TRUE(checkpoint.config().contains("model_type")) << entry.path();
    EXPECT_TRUE(checkpoint.json_file("generation_config.json")) << entry.path();
    ++n_models;
  }
  EXPECT_GE(n_models, 8);
}

}  // namespace
}  // namespace triptych
