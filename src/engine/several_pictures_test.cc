// Several pictures in a prompt: which goes where, and more than fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "support/source_dir.h"

namespace triptych {
namespace {

LoadedModel& model() {
  static const std::unique_ptr<LoadedModel> loaded =
      LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 2});
  return *loaded;
}

MediaInput picture(const std::string& name) {
  const auto file = MappedFile::open(test::source_path("assets/eval/scenes/") + name);
  MediaInput out;
  out.frames.push_back(decode_image(file->bytes(), {}, name));
  return out;
}

// Logits of every row; rows in front of a picture cannot know it.
TEST(SeveralPictures, TheFirstPictureGoesToTheFirstPlace) {
  const auto logits = [&](const std::vector<std::string>& names) {
    std::vector<MediaInput> media;
    for (const auto& name : names) media.push_back(picture(name));
    const PreparedRequest request = model().prepare_prompt("<image> first, <image><image> last", media);
    EXPECT_EQ(request.layout.runs.size(), 3U);
    Engine engine(model());
    return std::pair(Tensor::copy_of(engine.forward_prompt(request, nullptr)), request.layout);
  };
  const auto equal_until = [](const Tensor& a, const Tensor& b, std::int64_t rows) {
    const std::int64_t n = rows * a.view().dim(1);
    return std::equal(a.f32(), a.f32() + n, b.f32());
  };
  const auto [abc, layout] = logits({"0000.png", "0001.png", "0002.png"});
  const Tensor acb = logits({"0000.png", "0002.png", "0001.png"}).first;
  const Tensor bac = logits({"0001.png", "0000.png", "0002.png"}).first;
  const std::int64_t all = abc.view().dim(0);
  EXPECT_FALSE(equal_until(abc, acb, all));
  EXPECT_TRUE(equal_until(abc, acb, layout.runs[1].first_prompt_row));
  EXPECT_FALSE(equal_until(abc, acb, layout.runs[1].first_prompt_row + 1));
  EXPECT_TRUE(equal_until(abc, bac, layout.runs[0].first_prompt_row));
  EXPECT_FALSE(equal_until(abc, bac, layout.runs[0].first_prompt_row + 1));
}

// A thousand pictures of one pixel do not fit: refused with both numbers before their pixels are made.
TEST(SeveralPictures, AThousandPictures) {
  ChatRequest request;
  ChatMessage message;
  message.role = "user";
  for (int i = 0; i < 1000; ++i) {
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    request.media.push_back({.frames = {Image{1, 1, {1, 2, 3}}}, .is_video = false, .frames_per_s = 0});
  }
  message.parts.push_back({ContentPart::Kind::kText, "What is this?"});
  request.messages.push_back(std::move(message));
  try {
    model().prepare(request);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextLength) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(model().info().max_context_tokens)));
  }
}

// A prompt without pictures and two with them in one batch, on a model with positions of three axes: each
// answers as it does alone.
TEST(SeveralPictures, TextAloneAndPicturesInOneBatch) {
  const auto qwen = LoadedModel::open(test::source_path("assets/models/scenes-qwen2-vl"), {.n_threads = 2});
  const auto request = [&](const std::string& text, int n_pictures) {
    ChatRequest out;
    ChatMessage message;
    message.role = "user";
    for (int i = 0; i < n_pictures; ++i) {
      message.parts.push_back({ContentPart::Kind::kImage, ""});
      out.media.push_back(picture(i == 0 ? "0003.png" : "0004.png"));
    }
    message.parts.push_back({ContentPart::Kind::kText, text});
    out.messages.push_back(std::move(message));
    return qwen->prepare(out);
  };
  const std::pair<const char*, int> prompts[] = {
      {"How many shapes are there?", 0}, {"Describe the image.", 1}, {"Describe the image.", 2}};
  SamplingParams params;
  params.max_tokens = 24;
  params.ignore_eos = true;
  std::vector<std::vector<std::int32_t>> alone;
  for (const auto& [text, n] : prompts) {
    Engine engine(*qwen);
    alone.push_back(engine.generate(request(text, n), params).token_ids);
  }
  EXPECT_NE(alone[1], alone[2]);
  Engine engine(*qwen, {.max_batch_tokens = 17, .max_sequences = 3});
  std::vector<Engine::RequestId> ids;
  for (const auto& [text, n] : prompts) ids.push_back(engine.submit(request(text, n), params));
  while (engine.has_work()) engine.step();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->token_ids, alone[i]) << prompts[i].first << " with " << prompts[i].second;
  }
}

}  // namespace
}  // namespace triptych
