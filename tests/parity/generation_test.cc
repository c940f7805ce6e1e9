// Settings of generation_config.json against the reference's greedy ids (tests/data/generation/cases.json,
// made by tools/make_generation_cases.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/load.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

ChatRequest question_of(const Json& cases, const std::filesystem::path& model) {
  const std::string picture = cases["picture"];
  const auto file = MappedFile::open(model / picture);
  ChatRequest out;
  out.media.push_back(
      {.frames = {decode_image(file->bytes(), {}, picture)}, .is_video = false, .frames_per_s = 0});
  ChatMessage message;
  message.role = "user";
  message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, cases["question"]}};
  out.messages.push_back(std::move(message));
  return out;
}

TEST(GenerationConfig, GreedyIdsEqualTheReference) {
  const std::filesystem::path source = test::source_dir();
  const Json cases = parse_json(read_text_file(source / "tests/data/generation/cases.json"), "cases.json");
  const std::filesystem::path original = source / cases["model"].get<std::string>();
  const auto directory = std::filesystem::path(testing::TempDir()) / "generation_config_model";
  std::filesystem::remove_all(directory);
  std::filesystem::copy(original, directory);
  const Json published =
      parse_json(read_text_file(original / "generation_config.json"), "generation_config.json");
  const std::int32_t end = published["eos_token_id"];
  std::size_t n_different = 0;  // from the answer without settings
  for (const Json& one : cases["cases"]) {
    Json config = published;
    config.update(one["settings"]);
    if (!config.contains("max_length")) config["max_new_tokens"] = cases["max_new_tokens"];
    std::ofstream(directory / "generation_config.json") << config.dump();
    const auto model = LoadedModel::open(directory, {.n_threads = 1});
    Engine engine(*model, {.kv_cache_dtype = KvDType::kF32});
    const GenerationResult result =
        engine.generate(model->prepare(question_of(cases, directory)), model->generation_defaults());
    std::vector<std::int32_t> expected = one["ids"];
    const bool ends = !expected.empty() && expected.back() == end;
    if (ends) expected.pop_back();
    EXPECT_EQ(result.token_ids, expected) << one["name"];
    EXPECT_EQ(result.finish_reason, ends ? FinishReason::kStop : FinishReason::kLength) << one["name"];
    n_different += one["ids"] != cases["cases"][0]["ids"] ? 1 : 0;
  }
  EXPECT_EQ(n_different + 1, cases["cases"].size()) << "a setting changes nothing";
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace triptych
