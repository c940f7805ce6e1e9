// The public interface on the model that ships.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <stdexcept>

#include "api/public.h"
#include "base/build_info.h"
#include "support/source_dir.h"
namespace triptych::api {
namespace {

using testing::HasSubstr;

const std::string kModel = test::source_path("assets/models/scenes-llava");
const std::string kScenes = test::source_path("assets/eval/scenes/");

const Model& model() {
  static const Model loaded = Model::open(kModel, {.n_threads = 2});
  return loaded;
}

Image scene(const std::string& name = "0000.png") { return Image::from_file(kScenes + name); }

Request ask(const std::string& question, const std::string& name = "0000.png") {
  return {.messages = {ChatMessage::user(question, {scene(name)})}};
}

template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

TEST(Version, HeadersAndLibraryAgree) {
  const std::string headers = std::to_string(TRIPTYCH_VERSION_MAJOR) + "." +
                              std::to_string(TRIPTYCH_VERSION_MINOR) + "." +
                              std::to_string(TRIPTYCH_VERSION_PATCH);
  EXPECT_EQ(version(), headers);
  EXPECT_EQ(revision(), build_info().revision);
}

TEST(PublicImage, RgbGoesThroughPngAndBack) {
  std::vector<std::uint8_t> rgb(2 * 3 * 3);
  std::iota(rgb.begin(), rgb.end(), std::uint8_t{7});
  const Image image = Image::from_rgb(2, 3, rgb);
  EXPECT_EQ(image.width_px(), 2);
  EXPECT_EQ(image.height_px(), 3);
  const Image again = Image::decode(image.encode_png());
  EXPECT_EQ(again.width_px(), 2);
  EXPECT_EQ(again.height_px(), 3);
  EXPECT_TRUE(std::ranges::equal(again.rgb(), rgb));
}

TEST(PublicImage, CopiesShareThePixels) {
  const Image image = scene();
  Image copy = image;
  EXPECT_EQ(copy.rgb().data(), image.rgb().data());
  const Image moved = std::move(copy);
  EXPECT_EQ(moved.rgb().data(), image.rgb().data());
  EXPECT_EQ(copy.width_px(), image.width_px());  // NOLINT(bugprone-use-after-move): promised
}

TEST(PublicImage, DrawingLeavesTheOriginalAsItIs) {
  const Image image = scene();
  const std::vector<std::uint8_t> before(image.rgb().begin(), image.rgb().end());
  const Region box{.kind = RegionKind::kBox,
                   .label = "",
                   .media_index = 0,
                   .points_1000 = {},
                   .points_px = {{2, 2}, {30, 20}}};
  const Image drawn = image.with_regions({{box}});
  EXPECT_TRUE(std::ranges::equal(image.rgb(), before));
  EXPECT_FALSE(std::ranges::equal(drawn.rgb(), before));
}

TEST(PublicImage, ErrorsNameWhatWasWrong) {
  const std::vector<std::uint8_t> rgb(11);
  const Error size = error_of([&] { Image::from_rgb(2, 2, rgb); });
  EXPECT_EQ(size.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(size.what(), HasSubstr("expected 12 bytes of RGB, got 11"));
  EXPECT_THAT(error_of([&] { Image::from_rgb(0, 2, {}); }).what(), HasSubstr("0x2"));
  const Error absent = error_of([] { Image::from_file(kScenes + "absent.png"); });
  EXPECT_EQ(absent.code(), ErrorCode::kNotFound);
  EXPECT_THAT(absent.what(), HasSubstr("absent.png"));
  const std::byte no_picture[16] = {};
  const Error foreign = error_of([&] { Image::decode(no_picture, "upload 3"); });
  EXPECT_EQ(foreign.code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(foreign.what(), HasSubstr("upload 3"));
}

TEST(PublicVideo, FramesAreChecked) {
  const Image image = scene();
  const Image small = Image::from_rgb(1, 1, std::vector<std::uint8_t>(3));
  const Video video = Video::from_frames({{image, image}}, 2.0);
  EXPECT_EQ(video.n_frames(), 2);
  EXPECT_EQ(video.frames_per_s(), 2.0);
  EXPECT_TRUE(std::ranges::equal(video.frame(1).rgb(), image.rgb()));
  EXPECT_THROW(video.frame(2), Error);
  EXPECT_THROW(video.frame(-1), Error);
  EXPECT_THROW(Video::from_frames({}, 2.0), Error);
  EXPECT_THROW(Video::from_frames({{image}}, 0.0), Error);
  EXPECT_THAT(error_of([&] { Video::from_frames({{image, small}}, 2.0); }).what(), HasSubstr("1x1"));
}

TEST(PublicVideo, AModelWithoutVideosSaysSo) {
  EXPECT_FALSE(model().takes_videos());
  const VideoFile file = VideoFile::open(test::source_path("tests/data/videos/mixed.gif"));
  EXPECT_GT(file.n_frames(), 1);
  const Error read = error_of([&] { static_cast<void>(file.read(model())); });
  EXPECT_EQ(read.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(read.what(), HasSubstr("does not take videos"));
  Engine engine(model());
  const Video video = Video::from_frames({{scene()}}, 1.0);
  EXPECT_EQ(error_of([&] {
              engine.submit({.messages = {ChatMessage("user").add_video(video).add_text("?")}});
            }).code(),
            ErrorCode::kUnsupported);
  EXPECT_FALSE(engine.has_work());
}

TEST(PublicChatMessage, ACopyKeepsWhatItHeld) {
  const ChatMessage first = ChatMessage::user("What is it?", {scene()});
  ChatMessage second = first;
  second.add_text(" Say it.").add_image(scene("0001.png"));
  EXPECT_EQ(first.role(), "user");
  EXPECT_EQ(first.text(), "What is it?");
  EXPECT_EQ(first.n_media(), 1U);
  EXPECT_EQ(second.text(), "What is it? Say it.");
  EXPECT_EQ(second.n_media(), 2U);
  EXPECT_EQ(ChatMessage::assistant("Yes.").role(), "assistant");
}

TEST(PublicModel, SaysWhatItIs) {
  EXPECT_EQ(model().architecture(), "LlavaForConditionalGeneration");
  EXPECT_GT(model().max_context_tokens(), 100);
  EXPECT_FALSE(model().names_regions());
  EXPECT_FALSE(model().takes_pixel_limits());
  EXPECT_EQ(model().default_sampling().temperature, 0.0F);
  EXPECT_EQ(model().token(-1), "");
  EXPECT_EQ(model().token(1 << 30), "");
}

TEST(PublicModel, OptionsAreNamedInErrors) {
  const auto message = [](const ModelOptions& options) {
    return std::string(error_of([&] { Model::open(kModel, options); }).what());
  };
  EXPECT_THAT(message({.n_threads = -1}), HasSubstr("ModelOptions::n_threads"));
  EXPECT_THAT(message({.weights = "int9"}), HasSubstr("ModelOptions::weights"));
  EXPECT_THAT(message({.weights = "float"}), HasSubstr("ModelOptions::weights: expected auto, fp32"));
  EXPECT_THAT(message({.vision_weights = "fp16"}), HasSubstr("ModelOptions::vision_weights"));
  EXPECT_THAT(message({.lm_head = "x"}), HasSubstr("ModelOptions::lm_head"));
  EXPECT_THAT(message({.activations = "int8"}),
              HasSubstr("ModelOptions::activations: expected auto, fp32 or bf16"));
  EXPECT_THAT(message({.vision_attention = "no"}), HasSubstr("ModelOptions::vision_attention"));
  EXPECT_THAT(message({.vision_activations = ""}), HasSubstr("ModelOptions::vision_activations"));
  EXPECT_EQ(error_of([] { Model::open(kScenes); }).code(), ErrorCode::kNotFound);
}

TEST(PublicModel, QuantizesAndReportsProgress) {
  std::int64_t total = 0;
  int n_calls = 0;
  ModelOptions options{.n_threads = 2, .weights = "int8"};
  options.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    EXPECT_LE(done_bytes, total_bytes);
    total = total_bytes;
    ++n_calls;
  };
  Engine engine(Model::open(kModel, options));
  EXPECT_GT(total, 0);
  EXPECT_GT(n_calls, 1);
  EXPECT_EQ(engine.generate(ask("Which shape is orange?")).text, "square");
}

TEST(PublicEngine, AnswersAndKeepsItsModel) {
  Engine engine(Model::open(kModel, {.n_threads = 1}));
  const Result result = engine.generate(ask("Which shape is orange?"));
  EXPECT_EQ(result.text, "square");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_GT(result.n_image_tokens, 0);
  EXPECT_GT(result.n_prompt_tokens, result.n_image_tokens);
  EXPECT_GT(result.timings.prefill_ms, 0);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_TRUE(result.regions.empty());
  EXPECT_FALSE(engine.has_work());
}

// Settings of generation_config.json that no public parameter names hold for every request.
TEST(PublicEngine, FollowsTheProcessorsOfTheModel) {
  namespace fs = std::filesystem;
  Engine plain(model());
  const std::int32_t first = plain.generate(ask("Which shape is orange?")).token_ids.at(0);
  const fs::path copy = fs::path(testing::TempDir()) / "suppressing";
  fs::remove_all(copy);
  fs::copy(kModel, copy, fs::copy_options::recursive);
  std::ofstream(copy / "generation_config.json")
      << "{\"eos_token_id\": 2, \"suppress_tokens\": [" << first << "]}";
  Engine engine(Model::open(copy.string(), {.n_threads = 2}));
  for (const bool own : {false, true}) {
    Request request = ask("Which shape is orange?");
    if (own) request.sampling = SamplingParams{.max_tokens = 5};
    EXPECT_THAT(engine.generate(request).token_ids, testing::Not(testing::Contains(first))) << own;
  }
  fs::remove_all(copy);
}

TEST(PublicEngine, StreamsTheAnswer) {
  Engine engine(model());
  Request request = ask("Describe the image.");
  request.sampling = SamplingParams{.n_logprobs = 2};
  std::string streamed;
  std::size_t n_tokens = 0;
  const Result result = engine.generate(request, [&](const TokenEvent& event) {
    EXPECT_EQ(event.token.top.size(), 2U);
    streamed += event.text;
    ++n_tokens;
    return true;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_GE(n_tokens, result.token_ids.size());
  ASSERT_EQ(result.tokens.size(), result.token_ids.size());
  EXPECT_LE(result.tokens[0].logprob, 0.0F);
  EXPECT_FALSE(model().token(result.token_ids[0]).empty());
}

TEST(PublicEngine, RequestsRunTogetherAsAlone) {
  Engine engine(model());
  const std::string questions[] = {"Which shape is orange?", "Describe the image.",
                                   "Is the triangle small or large?"};
  std::map<RequestId, std::string> streamed;
  std::vector<RequestId> ids;
  for (const std::string& question : questions) ids.push_back(engine.submit(ask(question)));
  EXPECT_FALSE(engine.take_result(ids[0]).has_value());
  std::size_t n_finished = 0;
  while (engine.has_work())
    for (const StepOutput& output : engine.step()) {
      for (const TokenEvent& event : output.events) streamed[output.request_id] += event.text;
      n_finished += output.finish_reason ? 1 : 0;
    }
  EXPECT_EQ(n_finished, 3U);
  Engine alone(model());
  for (std::size_t i = 0; i < 3; ++i) {
    const std::optional<Result> result = engine.take_result(ids[i]);
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->text, alone.generate(ask(questions[i])).text);
    EXPECT_EQ(streamed[ids[i]], result->text);
    EXPECT_FALSE(engine.take_result(ids[i]).has_value()) << "a result is taken once";
  }
}

TEST(PublicEngine, CancelsByIdAndByCallback) {
  Engine engine(model());
  const RequestId id = engine.submit(ask("Describe the image."));
  engine.step();
  engine.cancel(id);
  while (engine.has_work()) engine.step();
  const std::optional<Result> cancelled = engine.take_result(id);
  ASSERT_TRUE(cancelled.has_value());
  EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled->token_ids.size(), 1U);

  int n_calls = 0;
  const Result stopped =
      engine.generate(ask("Describe the image."), [&](const TokenEvent&) { return ++n_calls < 3; });
  EXPECT_EQ(stopped.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(stopped.token_ids.size(), 3U);
}

TEST(PublicEngine, WhatACallbackThrowsReachesTheCallerAndTheEngineGoesOn) {
  Engine engine(model());
  EXPECT_THROW(engine.generate(ask("Describe the image."),
                               [](const TokenEvent&) -> bool { throw std::length_error("mine"); }),
               std::length_error);
  EXPECT_FALSE(engine.has_work());
  EXPECT_EQ(engine.generate(ask("Which shape is orange?")).text, "square");
}

TEST(PublicEngine, AConversationGoesOnWithThePrefixCache) {
  Engine engine(model(), {.prefix_cache_bytes = std::size_t{1} << 30});
  Request request = ask("Which shape is orange?");
  const Result first = engine.generate(request);
  request.messages.push_back(ChatMessage::assistant(first.text));
  request.messages.push_back(ChatMessage::user("Is the triangle small or large?"));
  const Result second = engine.generate(request);
  EXPECT_GT(second.n_reused_tokens, 0);
  Engine fresh(model());
  EXPECT_EQ(second.text, fresh.generate(request).text);
}

TEST(PublicEngine, AnotherEngineFindsPicturesInTheFolderOfTheFirst) {
  std::string folder = (std::filesystem::temp_directory_path() / "triptych-rows-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto answer = [&] {
    Engine engine(model(), {.vision_cache_bytes = 1 << 20, .vision_cache_dir = folder});
    const Result first = engine.generate(ask("Which shape is orange?"));
    const Result second = engine.generate(ask("Describe the image."));
    EXPECT_EQ(first.text, "square");
    EXPECT_EQ(second.n_cached_media, 1);
    return std::pair(first, engine.vision_cache_stats());
  };
  const auto [first, stats] = answer();
  EXPECT_EQ(first.n_cached_media, 0);
  EXPECT_EQ(stats.n_queries, 2);
  EXPECT_EQ(stats.n_hits_memory, 1);
  EXPECT_EQ(stats.n_hits_disk, 0);
  EXPECT_EQ(stats.n_items, 1);
  EXPECT_GT(stats.saved_ms, 0);
  const auto [later, later_stats] = answer();
  EXPECT_EQ(later.n_cached_media, 1);
  EXPECT_EQ(later_stats.n_hits_disk, 1);
  EXPECT_EQ(later_stats.n_hits_memory, 1);
  EXPECT_GT(later_stats.disk_bytes, later_stats.memory_bytes);
  EXPECT_EQ(later_stats.n_disk_failures, 0);
  std::filesystem::remove_all(folder);
}

TEST(PublicEngine, RefusesWhatCannotBe) {
  EXPECT_THAT(error_of([] { Engine(model(), {.kv_cache_dtype = "int5"}); }).what(),
              HasSubstr("EngineOptions::kv_cache_dtype"));
  EXPECT_THAT(error_of([] { Engine(model(), {.vision_cache_dtype = "int4"}); }).what(),
              HasSubstr("EngineOptions::vision_cache_dtype"));
  EXPECT_THAT(error_of([] { Engine(model(), {.vision_cache_dir = "/no/such/folder"}); }).what(),
              HasSubstr("/no/such/folder"));
  EXPECT_EQ(error_of([] { Engine(model(), {.max_sequences = 0}); }).code(), ErrorCode::kInvalidArgument);
  Engine engine(model(), {.max_context_tokens = 32});
  EXPECT_EQ(engine.max_context_tokens(), 32);
  EXPECT_EQ(error_of([&] { engine.submit(ask(std::string(400, 'x'))); }).code(), ErrorCode::kContextLength);
  Request request = ask("What?");
  request.sampling = SamplingParams{.top_p = 2.0F};
  Engine roomy(model());
  EXPECT_THAT(error_of([&] { roomy.submit(request); }).what(), HasSubstr("top_p"));
  EXPECT_EQ(error_of([&] { roomy.submit({.messages = {ChatMessage::user("\xff")}}); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(roomy.has_work());
  EXPECT_EQ(roomy.generate(ask("Which shape is orange?")).text, "square");
}

}  // namespace
}  // namespace triptych::api
