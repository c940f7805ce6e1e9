// Numbers that mean nothing, in every place where a family reads one: refused with the file and the key,
// before they become sizes or end as NaN.
#include "nn/config_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/testing/tiny_models.h"

namespace triptych {
namespace {

using test::Geometry;
using test::TinyFiles;
using test::TinyModel;
using ::testing::HasSubstr;

constexpr std::string_view kLlamaNumbers = R"({"rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 4, "partial_rotary_factor": 1.0})";
constexpr std::string_view kNormalization = R"({"rescale_factor": 0.00392, "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.3, 0.2, 0.1], "resample": 3})";

// The small files of a family with all numbers that it reads, also those it has defaults for.
TinyFiles files_with_all_numbers(std::string_view family) {
  TinyFiles out = test::tiny_files(family, Geometry::kSmall);
  Json& c = out.config;
  const auto add = [](Json& to, std::string_view text) {
    to.update(parse_json(text, "config_numbers_test"));
  };
  if (out.preprocessor.is_null() && family != "qwen_vl") out.preprocessor = Json::object();
  if (family != "qwen_vl") add(out.preprocessor, kNormalization);
  if (family == "llava" || family == "llava_next") {
    add(c, R"({"image_token_id": 9, "vision_feature_layer": -2})");
    add(c["text_config"], kLlamaNumbers);
    add(c["text_config"], R"({"model_type": "mistral", "sliding_window": 5})");
    add(c["vision_config"], R"({"layer_norm_eps": 1e-5, "num_channels": 3})");
    if (family == "llava_next") add(out.preprocessor, R"({"size": {"shortest_edge": 28}})");
  } else if (family == "llava_onevision") {
    add(c, R"({"vision_feature_layer": -1})");
    add(c["text_config"], kLlamaNumbers);
    add(c["text_config"], R"({"use_sliding_window": true, "sliding_window": 5, "max_window_layers": 0})");
    add(c["vision_config"], R"({"layer_norm_eps": 1e-6, "num_channels": 3})");
    add(out.preprocessor, R"({"size": {"height": 28, "width": 28}})");
  } else if (family == "blip2" || family == "instructblip") {
    add(c["vision_config"], R"({"layer_norm_eps": 1e-6})");
    add(c["qformer_config"], R"({"layer_norm_eps": 1e-12, "cross_attention_frequency": 2})");
    add(c["text_config"],
        family == "blip2" ? R"({"max_position_embeddings": 64, "word_embed_proj_dim": 8})" : kLlamaNumbers);
  } else if (family == "qwen2_vl" || family == "qwen2_5_vl") {
    add(c, R"({"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 8, "use_sliding_window": true,
        "sliding_window": 6, "max_window_layers": 0})");
    add(c["vision_config"], R"({"patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2,
        "in_channels": 3, "rope_parameters": {"rope_theta": 10000.0}})");
    if (family == "qwen2_vl") add(c["vision_config"], R"({"mlp_ratio": 1.0})");
    if (family == "qwen2_5_vl") add(c["vision_config"], R"({"tokens_per_second": 4})");
    add(out.preprocessor, R"({"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "fps": 2.0,
        "min_frames": 4, "max_frames": 768, "max_video_tokens": 128000,
        "size": {"shortest_edge": 3136, "longest_edge": 78400}})");
  } else if (family == "qwen3_vl") {
    add(c["text_config"], R"({"rms_norm_eps": 1e-6, "rope_theta": 5000000.0})");
    add(c["vision_config"], R"({"patch_size": 16, "temporal_patch_size": 2, "spatial_merge_size": 2,
        "in_channels": 3})");
    add(out.preprocessor, R"({"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2})");
  } else if (family == "fuyu") {
    add(c, R"({"layer_norm_eps": 1e-5, "rope_theta": 25000.0, "partial_rotary_factor": 0.5,
        "max_position_embeddings": 64, "num_channels": 3})");
    add(out.preprocessor, R"({"patch_size": {"height": 6, "width": 6}, "padding_value": 1})");
  } else {
    add(c, R"({"layer_norm_epsilon": 1e-6, "seq_length": 2048, "max_position_embeddings": 8192,
        "rotary_emb_base": 10000.0, "rotary_pct": 1.0})");
    add(c["visual"], R"({"mlp_ratio": 2.0})");
  }
  return out;
}

// Where the numbers of a document are.
void find_numbers(const Json& value, const Json::json_pointer& at, std::vector<Json::json_pointer>& out) {
  if (value.is_number()) out.push_back(at);
  if (value.is_object())
    for (const auto& [key, member] : value.items()) find_numbers(member, at / key, out);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) find_numbers(value[i], at / i, out);
}

// The innermost key on the way to a value.
std::string key_of(Json::json_pointer at) {
  while (!at.empty() && at.back().find_first_not_of("0123456789") == std::string::npos) at.pop_back();
  return at.back();
}

std::vector<Json> bad_values(const std::string& key, const Json& good) {
  const auto is_one_of = [&](std::initializer_list<const char*> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  std::vector<Json> out = {Json("many"), Json(1e308), Json(-1e308)};
  if (good.is_number_integer()) out.emplace_back(good.get<double>() + 0.5);
  if (!is_one_of({"vision_feature_layer", "image_mean", "fullatt_block_indexes"})) out.emplace_back(-1);
  const bool may_be_zero = is_one_of(
      {"vision_feature_layer", "image_mean", "image_token_id", "image_token_index", "video_token_id",
       "video_token_index", "deepstack_visual_indexes", "vision_token_id", "image_start_id",
       "max_window_layers", "resample", "padding_value", "fullatt_block_indexes"});
  if (!may_be_zero) out.emplace_back(0);
  return out;
}

void expect_refused(const TinyFiles& files, const std::string& file, const std::string& key,
                    const std::string& what) {
  try {
    const TinyModel model(files);
    ADD_FAILURE() << what << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << what << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr(file)) << what;
    EXPECT_THAT(error.what(), HasSubstr(key)) << what;
  }
}

class ConfigNumbers : public ::testing::TestWithParam<std::string_view> {};

TEST_P(ConfigNumbers, GoodOnesLoad) { EXPECT_NO_THROW(TinyModel(files_with_all_numbers(GetParam()))); }

TEST_P(ConfigNumbers, BadOnesAreRefusedByKey) {
  const TinyFiles files = files_with_all_numbers(GetParam());
  for (const bool in_config : {true, false}) {
    const std::string file = in_config ? "config.json" : "preprocessor_config.json";
    const Json& document = in_config ? files.config : files.preprocessor;
    std::vector<Json::json_pointer> numbers;
    find_numbers(document, Json::json_pointer(), numbers);
    for (const Json::json_pointer& at : numbers)
      for (const Json& bad : bad_values(key_of(at), document[at])) {
        TinyFiles changed = files;
        (in_config ? changed.config : changed.preprocessor)[at] = bad;
        expect_refused(changed, file, key_of(at),
                       std::string(GetParam()) + " " + at.to_string() + " " + bad.dump());
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigNumbers, ::testing::ValuesIn(test::kFamilies),
                         [](const auto& family) { return std::string(family.param); });

// A logarithm to base seq_length divides by 0 at 1.
TEST(ConfigNumbersOfQwenVl, ATrainedLengthOfOneIsRefused) {
  TinyFiles files = files_with_all_numbers("qwen_vl");
  files.config["seq_length"] = 1;
  expect_refused(files, "config.json", "seq_length", "seq_length 1");
}

TEST(ConfigNumbersReaders, BoundsAndDefaults) {
  const Json json = parse_json(R"({"one": 1.0, "tiny": 1e-40, "half": 0.5})", "f.json");
  const JsonView c(json, "f.json");
  EXPECT_EQ(read_positive(c, "missing", 0.25, 1.0), 0.25);
  EXPECT_EQ(read_positive(c, "half", 0.25, 0.5), 0.5);
  EXPECT_THROW(read_positive(c, "half", 0.25, 0.4), Error);
  EXPECT_THROW(read_norm_eps(c, "tiny", 1e-6), Error) << "0 in float32";
  EXPECT_EQ(read_norm_eps(c, "missing", 1e-6), 1e-6F);
  EXPECT_THROW(read_rope_theta(c, "one", 1e4), Error);
  EXPECT_EQ(read_rope_theta(c, "missing", 1e4), 1e4);
}

}  // namespace
}  // namespace triptych
