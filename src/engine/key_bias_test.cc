// Keys with a constant of order 100 in a few channels, as Qwen2's have it: caches of 8 and 4 bits still hold
// them. The trained model gets such biases where its rotary positions turn slowest, so that all scores of a
// query move alike and exact attention stays what it was.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/half.h"
#include "base/json.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

constexpr std::size_t kHeadDim = 32;

// Adds `bias` to channels 15 and 31 of every key head, the pair that turns by 2.4e-6 a position, with two
// signs.
void add_key_biases(const std::filesystem::path& file, float bias) {
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const SafetensorsHeader header =
      parse_safetensors_header(std::as_bytes(std::span(bytes)), bytes.size(), file.string());
  int n_changed = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (!tensor.name.ends_with("self_attn.k_proj.bias")) continue;
    ASSERT_EQ(tensor.dtype, DType::kF16);
    const auto n = static_cast<std::size_t>(tensor.shape.numel());
    for (std::size_t at = 15; at < n; at += kHeadDim / 2) {
      std::uint16_t half;
      char* const place = bytes.data() + tensor.begin_bytes + 2 * at;
      std::memcpy(&half, place, 2);
      half = f32_to_f16(f16_to_f32(half) + (at % kHeadDim == 15 ? bias : -0.8F * bias));
      std::memcpy(place, &half, 2);
    }
    ++n_changed;
  }
  ASSERT_EQ(n_changed, 4) << "layers";
  std::ofstream(file, std::ios::binary) << bytes;
}

struct Question {
  std::string image, text, answer;
};
std::vector<Question> questions() {
  std::ifstream lines(test::source_path("assets/eval/scenes-mixed/questions.jsonl"));
  std::vector<Question> out;
  for (std::string line; std::getline(lines, line);) {
    const Json one = parse_json(line, "questions.jsonl");
    out.push_back({one.at("image"), one.at("question"), one.at("answer")});
  }
  return out;
}

class KeyBias : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "triptych-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::copy(test::source_path("assets/models/scenes-qwen2-vl"), folder_,
                          std::filesystem::copy_options::recursive);
    add_key_biases(folder_ / "model.safetensors", 150.0F);
    model_ = LoadedModel::open(folder_, {.n_threads = 2});
  }
  static void TearDownTestSuite() {
    model_.reset();
    std::filesystem::remove_all(folder_);
  }
  static PreparedRequest prepare(LoadedModel& model, const Question& question) {
    ChatRequest request;
    ChatMessage message;
    message.role = "user";
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    message.parts.push_back({ContentPart::Kind::kText, question.text});
    const auto file = MappedFile::open(test::source_path("assets/eval/scenes-mixed/" + question.image));
    request.media.push_back({.frames = {decode_image(file->bytes(), {}, question.image)}});
    request.messages.push_back(std::move(message));
    return model.prepare(request);
  }
  static std::vector<std::string> answers(LoadedModel& model, KvDType cache) {
    Engine engine(model, {.kv_cache_dtype = cache, .vision_embedding_cache_bytes = std::size_t{16} << 20});
    std::vector<std::string> out;
    for (const Question& question : questions())
      out.push_back(engine.generate(prepare(model, question), SamplingParams{}).text);
    return out;
  }
  static std::size_t n_equal(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < a.size(); ++i) out += a[i] == b[i] ? 1U : 0U;
    return out;
  }

  static inline std::filesystem::path folder_;
  static inline std::unique_ptr<LoadedModel> model_;
};

TEST_F(KeyBias, ExactAttentionStaysWhatItWas) {
  const auto original =
      LoadedModel::open(test::source_path("assets/models/scenes-qwen2-vl"), {.n_threads = 2});
  const std::vector<std::string> expected = answers(*original, KvDType::kF32);
  EXPECT_EQ(answers(*model_, KvDType::kF32), expected);
}

TEST_F(KeyBias, QuantizedCachesAnswerAsExactOnes) {
  const std::vector<std::string> exact = answers(*model_, KvDType::kF32);
  ASSERT_GE(exact.size(), 90U);
  EXPECT_EQ(answers(*model_, KvDType::kInt8), exact);
  EXPECT_GE(n_equal(answers(*model_, KvDType::kFp8), exact), exact.size() - 1);
  EXPECT_GE(n_equal(answers(*model_, KvDType::kInt4), exact), exact.size() - 3);
}

}  // namespace
}  // namespace triptych
