#include "models/qwen2_prompt.h"

#include <gmock/gmock.h>

#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kImage = 471;
constexpr std::int32_t kVideo = 472;

Qwen2PromptRules rules(int tokens_per_second = 0) {
  return {.tokens = {.image = kImage, .video = kVideo, .pad = -1},
          .tower = {},
          .tokens_per_second = tokens_per_second,
          .max_context_tokens = 1000};
}

MediaPlan picture(int rows, int cols) {
  return {.meta = {.width_px = 28 * cols, .height_px = 28 * rows},
          .grid_t = 1,
          .grid_h = 2 * rows,
          .grid_w = 2 * cols,
          .n_tokens = rows * cols,
          .n_prompt_tokens = rows * cols};
}

MediaPlan video(int steps, int rows, int cols, double frames_per_s = 2.0) {
  MediaPlan out = picture(rows, cols);
  out.meta.n_frames = 2 * steps;
  out.meta.is_video = true;
  out.meta.frames_per_s = frames_per_s;
  out.grid_t = steps;
  out.n_tokens = out.n_prompt_tokens = steps * rows * cols;
  return out;
}

std::string message_of(std::span<const std::int32_t> ids, std::span<const MediaPlan> plans,
                       ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    expand_qwen2_prompt(ids, plans, rules());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(Qwen2Prompt, PicturesFillTheirPlaces) {
  const std::int32_t ids[] = {1, 468, kImage, 469, 2, 468, kImage, 469};
  const MediaPlan plans[] = {picture(1, 2), picture(2, 2)};
  const PromptLayout layout = expand_qwen2_prompt(ids, plans, rules());
  EXPECT_THAT(layout.input_ids,
              ElementsAre(1, 468, kImage, kImage, 469, 2, 468, kImage, kImage, kImage, kImage, 469));
  ASSERT_EQ(layout.runs.size(), 2U);
  EXPECT_EQ(layout.runs[0].media_index, 0);
  EXPECT_EQ(layout.runs[0].first_prompt_row, 2);
  EXPECT_EQ(layout.runs[0].n_rows, 2);
  EXPECT_EQ(layout.runs[1].media_index, 1);
  EXPECT_EQ(layout.runs[1].first_prompt_row, 7);
  EXPECT_EQ(layout.runs[1].n_rows, 4);
  const std::vector<std::int32_t> temporal(layout.positions.begin(), layout.positions.begin() + 12);
  EXPECT_THAT(temporal, ElementsAre(0, 1, 2, 2, 4, 5, 6, 7, 7, 7, 7, 9));
  EXPECT_EQ(layout.next_position, 10);
}

// Pictures and videos are counted each by themselves: the first <|video_pad|> is the first video.
TEST(Qwen2Prompt, PicturesAndVideosAreMatchedByKind) {
  const std::int32_t ids[] = {kVideo, 1, kImage, kVideo};
  const MediaPlan plans[] = {picture(1, 1), video(2, 1, 1), video(1, 1, 3)};
  const PromptLayout layout = expand_qwen2_prompt(ids, plans, rules());
  EXPECT_THAT(layout.input_ids, ElementsAre(kVideo, kVideo, 1, kImage, kVideo, kVideo, kVideo));
  ASSERT_EQ(layout.runs.size(), 3U);
  EXPECT_EQ(layout.runs[0].media_index, 1);
  EXPECT_EQ(layout.runs[1].media_index, 0);
  EXPECT_EQ(layout.runs[2].media_index, 2);
}

// Qwen3-VL: every grid step has a placeholder of its own and lies like a picture.
TEST(Qwen2Prompt, VideosInParts) {
  Qwen2PromptRules split = rules();
  split.splits_videos = true;
  const std::int32_t ids[] = {1, kVideo, 2, kVideo, kImage, kVideo};
  const MediaPlan plans[] = {picture(1, 1), video(2, 1, 2), video(1, 2, 1)};
  const PromptLayout layout = expand_qwen2_prompt(ids, plans, split);
  EXPECT_THAT(layout.input_ids, ElementsAre(1, kVideo, kVideo, 2, kVideo, kVideo, kImage, kVideo, kVideo));
  ASSERT_EQ(layout.runs.size(), 4U);
  const auto run = [&](std::size_t i) {
    const MediaRun& r = layout.runs[i];
    return std::vector<std::int64_t>{r.media_index, r.first_media_row, r.first_prompt_row, r.n_rows};
  };
  EXPECT_THAT(run(0), ElementsAre(1, 0, 1, 2));
  EXPECT_THAT(run(1), ElementsAre(1, 2, 4, 2));
  EXPECT_THAT(run(2), ElementsAre(0, 0, 6, 1));
  EXPECT_THAT(run(3), ElementsAre(2, 0, 7, 2));
  const std::vector<std::int32_t> temporal(layout.positions.begin(), layout.positions.begin() + 9);
  EXPECT_THAT(temporal, ElementsAre(0, 1, 1, 3, 4, 4, 6, 7, 7));
  EXPECT_EQ(layout.next_position, 9);
  try {
    const std::int32_t once[] = {kVideo};
    expand_qwen2_prompt(once, std::span(plans).subspan(1, 1), split);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 video frame pair placeholder (<|video_pad|>) but 2 video frame "
                                        "pairs were given"));
  }
}

TEST(Qwen2Prompt, CountsThatDoNotMatchAreNamed) {
  const MediaPlan one[] = {picture(1, 1)};
  const std::int32_t two_places[] = {kImage, 5, kImage};
  EXPECT_THAT(message_of(two_places, one),
              HasSubstr("2 image placeholders (<|image_pad|>) but 1 image was given"));
  const std::int32_t none[] = {5};
  EXPECT_THAT(message_of(none, one), HasSubstr("0 image placeholders (<|image_pad|>) but 1 image was given"));
  const std::int32_t a_video[] = {kVideo};
  EXPECT_THAT(message_of(a_video, {}),
              HasSubstr("1 video placeholder (<|video_pad|>) but 0 videos were given"));
  const MediaPlan clip[] = {video(1, 1, 1)};
  const std::int32_t a_picture[] = {kImage};
  EXPECT_THAT(message_of(a_picture, clip),
              HasSubstr("1 image placeholder (<|image_pad|>) but 0 images were given"));
}

TEST(Qwen2Prompt, LongerThanTheContext) {
  const MediaPlan plans[] = {picture(25, 40)};
  const std::int32_t ids[] = {1, kImage};
  EXPECT_THAT(message_of(ids, plans, ErrorCode::kContextLength),
              HasSubstr("1001 tokens and the context holds 1000"));
}

std::vector<std::int32_t> times_of(const MediaPlan& plan, int tokens_per_second) {
  const std::int32_t ids[] = {kVideo};
  const PromptLayout layout = expand_qwen2_prompt(ids, {&plan, 1}, rules(tokens_per_second));
  return {layout.positions.begin(),
          layout.positions.begin() + static_cast<std::ptrdiff_t>(layout.input_ids.size())};
}

TEST(Qwen2Prompt, TimeOfVideos) {
  EXPECT_THAT(times_of(video(4, 1, 1, 2.0), 0), ElementsAre(0, 1, 2, 3));  // Qwen2-VL counts steps
  EXPECT_THAT(times_of(video(4, 1, 1, 2.0), 2), ElementsAre(0, 2, 4, 6));  // a step is a second
  EXPECT_THAT(times_of(video(4, 1, 1, 0.0), 2), ElementsAre(0, 2, 4, 6));  // no rate: two frames a second
  EXPECT_THAT(times_of(video(4, 1, 1, 8.0), 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(times_of(video(3, 1, 1, 1.0), 25), ElementsAre(0, 50, 100));
  // A picture has no length in time.
  const MediaPlan still = picture(1, 3);
  const std::int32_t ids[] = {kImage, 7};
  const PromptLayout layout = expand_qwen2_prompt(ids, {&still, 1}, rules(2));
  EXPECT_THAT(std::vector<std::int32_t>(layout.positions.begin(), layout.positions.begin() + 4),
              ElementsAre(0, 0, 0, 3));
}

TEST(Qwen2Prompt, ImpossibleFrameRates) {
  for (const double rate :
       {-1.0, 1e-12, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(times_of(video(4, 1, 1, rate), 2), Error) << rate;
}

LlamaConfig parse(const char* text, bool force_tie = false) {
  const Json json = Json::parse(text);
  return parse_qwen2_vl_text(JsonView(json, "config.json"), force_tie);
}

TEST(Qwen2Text, FlatAndNestedConfigurations) {
  const LlamaConfig flat = parse(R"({"model_type": "qwen2_vl", "hidden_size": 1536, "num_attention_heads": 12,
    "num_key_value_heads": 2, "num_hidden_layers": 28, "intermediate_size": 8960, "vocab_size": 151936,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})");
  const LlamaConfig nested = parse(R"({"model_type": "qwen2_vl", "tie_word_embeddings": true, "text_config": {
    "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
    "num_hidden_layers": 28, "intermediate_size": 8960, "vocab_size": 151936, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [16, 24, 24]}}})");
  for (const LlamaConfig& c : {flat, nested}) {
    EXPECT_EQ(c.hidden_size, 1536);
    EXPECT_EQ(c.head_dim, 128);
    EXPECT_EQ(c.n_kv_heads, 2);
    EXPECT_EQ(c.rope.theta, 1e6);
    EXPECT_THAT(c.rope.mrope_section, ElementsAre(16, 24, 24));
    EXPECT_TRUE(c.qkv_bias);
    EXPECT_TRUE(c.tie_word_embeddings);
    EXPECT_EQ(c.rms_norm_eps, 1e-6F);
  }
}

TEST(Qwen2Text, ClassDefaults) {
  const LlamaConfig c = parse(R"({"model_type": "qwen2_5_vl"})");
  EXPECT_EQ(c.vocab_size, 152064);
  EXPECT_EQ(c.hidden_size, 8192);
  EXPECT_EQ(c.n_layers, 80);
  EXPECT_EQ(c.n_kv_heads, 8);
  EXPECT_EQ(c.max_position_embeddings, 32768);
  EXPECT_EQ(c.rms_norm_eps, 1e-5F);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_THAT(c.rope.mrope_section, ElementsAre(16, 24, 24));
  EXPECT_FALSE(c.tie_word_embeddings);
}

TEST(Qwen2Text, TyingMayBeStatedInEitherPlace) {
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": true}})").tie_word_embeddings);
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": false}, "tie_word_embeddings": true})")
                  .tie_word_embeddings);
  EXPECT_TRUE(parse(R"({"text_config": {"tie_word_embeddings": true}, "tie_word_embeddings": false})")
                  .tie_word_embeddings);
  EXPECT_FALSE(parse(R"({"text_config": {}})").tie_stated);
  EXPECT_TRUE(parse(R"({"text_config": {}})", true).tie_word_embeddings);
}

TEST(Qwen2Text, SectionsMustFitTheHead) {
  EXPECT_THROW(parse(R"({"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1})"), Error);
  EXPECT_THROW(parse(R"({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 23]}})"), Error);
  EXPECT_THROW(parse(R"({"rope_scaling": {"type": "mrope", "mrope_section": [16, 48]}})"), Error);
  const LlamaConfig c = parse(
      R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "mrope_section": [16, 24, 24]}})");
  EXPECT_EQ(c.rope.scaling, RopeConfig::Scaling::kYarn);
}

TEST(Qwen2Tokens, ReadFromTheConfiguration) {
  const auto parse_tokens = [](const char* text, std::optional<std::int32_t> in_tokenizer = std::nullopt) {
    const Json json = Json::parse(text);
    ModelSource source{.config = JsonView(json, "config.json"),
                       .preprocessor = {},
                       .video_preprocessor = {},
                       .processor = {},
                       .token_id = {}};
    if (in_tokenizer) source.token_id = [=](std::string_view) { return in_tokenizer; };
    return Qwen2VisionTokens::parse(source);
  };
  EXPECT_EQ(parse_tokens("{}").image, 151655);
  EXPECT_EQ(parse_tokens("{}").video, 151656);
  EXPECT_EQ(parse_tokens("{}").pad, -1);
  EXPECT_EQ(parse_tokens("{}", 470).pad, 470);
  EXPECT_EQ(parse_tokens(R"({"vision_token_id": 151654})", 470).pad, 151654);
  EXPECT_THROW(parse_tokens(R"({"image_token_id": 5, "video_token_id": 5})"), Error);
  EXPECT_THROW(parse_tokens(R"({"image_token_id": -5})"), Error);
}

}  // namespace
}  // namespace triptych
