// Videos through the program: folders of frames against the reference's answers, animations, order, errors.
#include <nlohmann/json.hpp>

#include "e2e/program.h"
#include "support/shared_dir.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::filesystem::path kData = kSource / "tests/data";
const std::filesystem::path kQwen = kSource / "assets/models/scenes-qwen2-vl";
const std::string kGif = (kData / "videos/mixed.gif").string();
const std::string kStar = (kScenes / "scene1.png").string();

// The five frames of a reference model, named so that only the natural order is right.
std::filesystem::path frames_folder(const Scratch& scratch, const std::filesystem::path& model) {
  const auto folder = scratch.path() / "frames";
  std::filesystem::create_directory(folder);
  for (int i = 0; i < 5; ++i)
    std::filesystem::copy_file(model / ("frame" + std::to_string(i) + ".png"),
                               folder / ("frame" + std::to_string(8 + i) + ".png"));
  return folder;
}

json video_case(const std::filesystem::path& model) {
  const json golden = json::parse(read_file(model / "golden.json"));
  for (const json& one : golden["cases"])
    if (one["name"] == "video") return one;
  return {};
}

TEST(Video, AFolderOfFramesGetsTheReferencesAnswer) {
  for (const char* family : {"qwen2_vl", "qwen2_5_vl", "qwen3_vl"}) {
    const std::filesystem::path model = kData / "golden" / family;
    const json golden = video_case(model);
    const Scratch scratch;
    std::vector<std::string> args = {"run",
                                     model.string(),
                                     "--video",
                                     frames_folder(scratch, model).string(),
                                     "--fps",
                                     std::to_string(golden["fps"].get<double>()),
                                     "--prompt",
                                     golden["parts"].back().get<std::string>(),
                                     "--json",
                                     "--ignore-eos",
                                     "--temperature",
                                     "0",
                                     "--max-tokens",
                                     std::to_string(golden["generated_ids"].size()),
                                     "--kv-cache-dtype",
                                     "fp32",
                                     "--repetition-penalty",
                                     "1"};
    // The reference was run with limits that fit the frames; Qwen3-VL's are the directory's.
    if (std::string(family) != "qwen3_vl")
      for (const char* limit : {"--min-pixels", "--max-pixels"}) {
        args.push_back(limit);
        args.push_back(std::to_string(112 * 84));
      }
    const RunResult result = triptych(args);
    ASSERT_EQ(result.exit_code, 0) << family << result.err;
    const json out = json::parse(result.out);
    EXPECT_EQ(out["token_ids"], golden["generated_ids"]) << family;
    EXPECT_EQ(out["usage"]["prompt_tokens"], golden["input_ids"].size()) << family;
  }
}

// Frames take no limits of pixels there: each is seen in the tower's size.
TEST(Video, AFolderOfFramesForLlavaOnevision) {
  const std::filesystem::path model = kData / "golden/llava_onevision";
  const json golden = video_case(model);
  const Scratch scratch;
  const auto folder = scratch.path() / "frames";
  std::filesystem::create_directory(folder);
  for (const json& part : golden["parts"])
    if (part.contains("image"))
      std::filesystem::copy_file(model / part["image"].get<std::string>(),
                                 folder / part["image"].get<std::string>());
  const RunResult result = triptych(
      {"run", model.string(), "--video", folder.string(), "--prompt",
       golden["parts"].back()["text"].get<std::string>(), "--json", "--ignore-eos", "--temperature", "0",
       "--max-tokens", std::to_string(golden["generated_ids"].size()), "--kv-cache-dtype", "fp32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["token_ids"], golden["generated_ids"]);
  EXPECT_EQ(out["usage"]["prompt_tokens"], golden["input_ids"].size());
}

TEST(Video, AbsoluteTimeChangesTheAnswerOfQwen25) {
  const std::filesystem::path model = kData / "golden/qwen2_5_vl";
  const Scratch scratch;
  const std::string frames = frames_folder(scratch, model).string();
  const auto logprob = [&](const char* fps) {
    const RunResult result =
        triptych({"run", model.string(), "--video", frames, "--fps", fps, "--prompt", "x", "--json",
                  "--max-tokens", "1", "--logprobs", "0", "--ignore-eos"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["logprobs"][0]["logprob"].get<double>();
  };
  EXPECT_NE(logprob("2"), logprob("0.5"));
}

TEST(Video, AStillPictureIsSeenAsThePicture) {
  // A picture stands twice in its temporal patch, as a video of one frame does.
  const auto answer = [&](const char* flag) {
    return triptych({"run", kQwen.string(), flag, kStar, "--prompt", "Is the star small or large?",
                     "--min-pixels", "3136", "--max-pixels", "12544"});
  };
  const RunResult as_image = answer("--image");
  const RunResult as_video = answer("--video");
  EXPECT_EQ(as_image.exit_code, 0) << as_image.err;
  EXPECT_EQ(as_image.out, "small\n");
  EXPECT_EQ(as_video.out, as_image.out) << as_video.err;
}

TEST(Video, AnimationsAreSampled) {
  const auto image_tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",    kQwen.string(), "--prompt", "x",
                                     "--json", "--max-tokens", "1",        "--min-pixels",
                                     "784",    "--max-pixels", "784"};
    args.insert(args.end(), more.begin(), more.end());
    const RunResult result = triptych(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out)["usage"]["image_tokens"].get<int>() : -1;
  };
  // Two tokens a temporal patch of two frames. Six frames in 0.6 s: four at least, six with a higher rate.
  EXPECT_EQ(image_tokens({"--video", kGif}), 4);
  EXPECT_EQ(image_tokens({"--video", kGif, "--fps", "10"}), 6);
  EXPECT_EQ(image_tokens({"--video", kGif, "--fps", "10", "--max-frames", "2"}), 2);
  EXPECT_EQ(image_tokens({"--video", kGif, "--fps", "1", "--video-fps", "1"}), 6);
  EXPECT_EQ(image_tokens({"--video", (kData / "videos/blend.webp").string()}), 4);
}

// What stands before the question in the prompt, as told by the tokens of a trace.
TEST(Video, PicturesAndVideosKeepTheirOrder) {
  const std::filesystem::path model = kData / "golden/qwen2_vl";
  const auto text_of = [&](const std::vector<std::string>& media) {
    std::vector<std::string> args = {"run", model.string()};
    args.insert(args.end(), media.begin(), media.end());
    args.insert(args.end(), {"--prompt", "x", "--json", "--max-tokens", "12", "--ignore-eos", "--logprobs",
                             "0", "--kv-cache-dtype", "fp32"});
    const RunResult result = triptych(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out)["logprobs"] : json();
  };
  const json first = text_of({"--video", kGif, "--image", kStar});
  EXPECT_EQ(first, text_of({"--video=" + kGif, "--image", kStar}));
  EXPECT_NE(first, text_of({"--image", kStar, "--video", kGif}));
}

TEST(Video, InAChat) {
  const RunResult result =
      triptych({"run", kQwen.string(), "-i", "--json", "--max-tokens", "4", "--min-pixels", "3136",
                "--max-pixels", "12544"},
               "/video " + kStar + "\nIs the star small or large?\n/video\n/video absent\n");
  EXPECT_EQ(result.exit_code, 2);  // of the last two lines
  EXPECT_EQ(json::parse(result.out.substr(0, result.out.find('\n')))["text"], "small");
  EXPECT_THAT(result.err, HasSubstr("/video needs a file name"));
  EXPECT_THAT(result.err, HasSubstr("absent: cannot read"));
}

TEST(Video, LinesOfABatchAreSampled) {
  const Scratch scratch;
  const std::string in = (scratch.path() / "in.jsonl").string();
  write_file(in, nlohmann::json{{"prompt", "x"}, {"video", kGif}, {"max_tokens", 1}}.dump() + "\n");
  const RunResult result = triptych({"run", kQwen.string(), "--jsonl", in, "-", "--fps", "10", "--min-pixels",
                                     "784", "--max-pixels", "784"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["usage"]["image_tokens"], 6);
}

TEST(Video, BadInputIsOneLine) {
  const Scratch scratch;
  const auto run = [&](const std::filesystem::path& model, const std::string& video) {
    return triptych({"run", model.string(), "--video", video, "--prompt", "x"});
  };
  expect_bad_input(run(kQwen, (scratch.path() / "absent").string()), "cannot read");
  expect_bad_input(run(kQwen, scratch.path().string()), "no file in it");
  expect_bad_input(run(kModel, kGif),
                   "LlavaForConditionalGeneration does not take videos; these do: "
                   "LlavaOnevisionForConditionalGeneration, Qwen2_5_VLForConditionalGeneration, "
                   "Qwen2VLForConditionalGeneration, "
                   "Qwen3VLForConditionalGeneration");
  const std::string gif = read_file(kGif);
  const std::string cut = (scratch.path() / "cut.gif").string();
  write_file(cut, gif.substr(0, gif.size() / 2));
  expect_bad_input(run(kQwen, cut), "cut.gif");
  std::string huge = gif;  // a canvas of 65535 x 65535
  huge.replace(6, 4, "\xff\xff\xff\xff");
  write_file(cut, huge);
  expect_bad_input(run(kQwen, cut), "at most");
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{
           {"--fps", "0"}, {"--max-frames", "0"}, {"--video-fps", "-1"}})
    expect_bad_input(triptych({"run", kQwen.string(), "--video", kGif, flag, value, "--prompt", "x"}), flag);
}

TEST(Video, ATemplateWithoutVideosSaysSo) {
  const Scratch scratch;
  const auto model = scratch.copy_of(kData / "golden/qwen2_vl", "model");
  json chat_template = json::parse(read_file(model / "chat_template.json"));
  chat_template["chat_template"] =
      "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<|image_pad|>{% elif "
      "'text' "
      "in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}";
  write_file(model / "chat_template.json", chat_template.dump());
  expect_bad_input(triptych({"run", model.string(), "--video", kGif, "--prompt", "x"}),
                   "the chat template of this model prints nothing for a video");
}

// ---- eval on a random model of another family

TEST(Eval, RunsOnARandomFuyu) {
  TRIPTYCH_SHARED_OR_SKIP(fuyu, "golden/models/fuyu");
  const RunResult result = triptych({"eval", fuyu.string(), "--data",
                                     (kSource / "assets/eval/scenes").string(), "--limit", "12", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["total"]["n"], 12);
  EXPECT_EQ(out["pictures_encoded"],
            3);  // the first twelve questions are about two pictures; and a blank one
  EXPECT_LT(out["total"]["mean_logprob"], 0.0);
}

}  // namespace
}  // namespace triptych::test
