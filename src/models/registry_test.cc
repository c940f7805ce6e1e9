// Which family a configuration means, and what the message says when it is none.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/testing/tiny_models.h"

namespace triptych {
namespace {

using test::Geometry;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string why_refused(const Json& config) {
  try {
    ModelRegistry::global().find(JsonView(config, "config.json"));
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidFile);
    return error.what();
  }
  return "found";
}

// The whole message of loading, for configurations whose architecture is known.
std::string why_not_loaded(test::TinyFiles files) {
  try {
    test::TinyModel model(std::move(files));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return error.what();
  }
  return "loaded";
}

TEST(Registry, EveryFamilyIsFoundAndLoads) {
  for (const std::string_view family : test::kFamilies) {
    const auto files = test::tiny_files(family, Geometry::kSmall);
    EXPECT_EQ(ModelRegistry::global().find(JsonView(files.config, "config.json")).name, family);
    const test::TinyModel model(family, Geometry::kSmall);
    EXPECT_GT(model->info().vocab_size, 0) << family;
    EXPECT_FALSE(model->info().image_placeholder.empty()) << family;
    EXPECT_FALSE(model->info().default_chat_template.empty()) << family;
  }
  EXPECT_EQ(ModelRegistry::global().families().size(), std::size(test::kFamilies));
}

TEST(Registry, UnknownArchitecturesAreNamedWithTheNearestAndAllSupported) {
  const std::pair<const char*, const char*> cases[] = {
      {"Qwen3VLMoeForConditionalGeneration", "Qwen3VLForConditionalGeneration"},
      {"Qwen2_5_VLForConditionalGenerationX", "Qwen2_5_VLForConditionalGeneration"},
      {"LlavaOnevisionForCausalLM", "LlavaMistralForCausalLM"},
      {"FuyuModel", "FuyuForCausalLM"},
      {"Blip3ForConditionalGeneration", "Blip2ForConditionalGeneration"},
      {"InstructBlipVideoForConditionalGeneration", "InstructBlipForConditionalGeneration"},
      {"QwenVLLMHeadModel", "QWenLMHeadModel"}};
  for (const auto& [unknown, nearest] : cases) {
    const std::string why = why_refused({{"architectures", {unknown}}});
    EXPECT_THAT(why,
                HasSubstr(fmt::format("architecture {} is not supported; nearest is {};", unknown, nearest)));
    for (const auto& family : ModelRegistry::global().families())
      for (const std::string& architecture : family.architectures) EXPECT_THAT(why, HasSubstr(architecture));
  }
}

TEST(Registry, LanguageModelsForTextAloneAreNamedAsSuch) {
  for (const char* name : {"LlamaForCausalLM", "Qwen2ForCausalLM", "GPT2LMHeadModel"}) {
    const std::string why = why_refused({{"architectures", {name}}, {"model_type", "llama"}});
    EXPECT_THAT(why, HasSubstr(std::string(name) + " is a language model for text alone"));
    EXPECT_THAT(why, HasSubstr("LlavaForConditionalGeneration"));
    EXPECT_THAT(why, testing::Not(HasSubstr("nearest")));
  }
  EXPECT_THAT(why_refused({{"architectures", {"Phi3VForCausalLM"}}, {"img_processor", Json::object()}}),
              HasSubstr("nearest is"));
}

TEST(Registry, ConfigurationsThatNameNothing) {
  EXPECT_THAT(why_refused(Json::object()), HasSubstr("\"architectures\""));
  EXPECT_THAT(why_refused({{"model_type", 3}}), HasSubstr("model_type"));
  EXPECT_THAT(why_refused({{"architectures", Json::array()}}), HasSubstr("missing or empty"));
  EXPECT_THAT(why_refused({{"architectures", {1}}}), HasSubstr("architectures"));
  EXPECT_THAT(why_refused({{"architectures", {std::string(5000, 'x')}}}), HasSubstr("xxx is not supported"));
  EXPECT_LT(why_refused({{"architectures", {std::string(5000, 'x')}}}).size(), 1000U);
}

// A class that families share, or that only some checkpoints of are meant.
TEST(Registry, SharedArchitecturesSayWhatIsMissing) {
  EXPECT_THAT(why_refused({{"architectures", {"QWenLMHeadModel"}}}), HasSubstr("\"visual\""));
  EXPECT_THAT(why_refused({{"model_type", "qwen"}}), HasSubstr("\"visual\""));
}

// The reference reads the model type alone; programs that train leave the other out.
TEST(Registry, TheModelTypeDecidesWithoutArchitectures) {
  const std::map<std::string, std::string, std::less<>> others = {{"blip2", "blip-2"}, {"qwen_vl", "qwen"}};
  for (const std::string_view family : test::kFamilies) {
    auto files = test::tiny_files(family, Geometry::kSmall);
    files.config.erase("architectures");
    const auto other = others.find(family);
    files.config["model_type"] = other == others.end() ? std::string(family) : other->second;
    EXPECT_EQ(ModelRegistry::global().find(JsonView(files.config, "config.json")).name, family);
    files.config["architectures"] = Json::array();
    EXPECT_EQ(ModelRegistry::global().find(JsonView(files.config, "config.json")).name, family);
  }
  EXPECT_THAT(why_refused({{"model_type", "mllama"}}),
              AllOf(HasSubstr("\"architectures\""), HasSubstr("\"mllama\"")));
}

// The original repository has one class, and model types llava and llava_llama, for 1.5 and 1.6 alike.
TEST(Registry, TilesTellOriginalLayoutsApart) {
  const auto family_of = [](const Json& config) {
    return ModelRegistry::global().find(JsonView(config, "config.json")).name;
  };
  for (const Json& named :
       {Json{{"architectures", {"LlavaLlamaForCausalLM"}}}, Json{{"model_type", "llava"}},
        Json{{"model_type", "llava_llama"}}, Json{{"architectures", {"LlavaMistralForCausalLM"}}},
        Json{{"model_type", "llava_mistral"}}}) {
    Json config = named;
    EXPECT_EQ(family_of(config), "llava") << config;
    for (const char* ratio : {"pad", "square", "highres"}) {
      config["image_aspect_ratio"] = ratio;
      EXPECT_EQ(family_of(config), "llava") << config;
    }
    for (const char* ratio : {"anyres", "anyres_max_9"}) {
      config["image_aspect_ratio"] = ratio;
      EXPECT_EQ(family_of(config), "llava_next") << config;
    }
  }
  // Converted checkpoints have no such key, and one that is left over decides nothing.
  EXPECT_EQ(
      family_of({{"model_type", "llava"}, {"text_config", Json::object()}, {"image_aspect_ratio", "anyres"}}),
      "llava");
}

// Published directories always say how pictures are made, but for those of the original repositories.
TEST(Registry, FamiliesThatNeedAPreprocessor) {
  for (const std::string_view name : test::kFamilies) {
    const Json config = test::tiny_files(name, Geometry::kSmall).config;
    const JsonView view(config, "config.json");
    const ModelRegistry::Family& family = ModelRegistry::global().find(view);
    if (name == "qwen_vl") {
      EXPECT_FALSE(family.without_preprocessor) << "its numbers are in its code";
      continue;
    }
    ASSERT_TRUE(family.without_preprocessor) << name;
    EXPECT_EQ(family.without_preprocessor(view), std::nullopt) << name;
  }
  const Json original = {{"architectures", {"LlavaLlamaForCausalLM"}}};
  const JsonView view(original, "config.json");
  EXPECT_THAT(ModelRegistry::global().find(view).without_preprocessor(view).value_or(""), HasSubstr("CLIP"));
}

TEST(Registry, FlanT5VariantsAreRefusedByName) {
  for (const char* family : {"blip2", "instructblip"}) {
    auto files = test::tiny_files(family, Geometry::kSmall);
    files.config["text_config"] = {{"model_type", "t5"}, {"architectures", {"T5ForConditionalGeneration"}}};
    const std::string why = why_not_loaded(std::move(files));
    EXPECT_THAT(why, HasSubstr("text_config.model_type"));
    EXPECT_THAT(why, HasSubstr("Flan-T5"));
  }
}

}  // namespace
}  // namespace triptych
