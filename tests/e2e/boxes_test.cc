// Boxes in answers, by the program as users run it: in --json and drawn. The models say one fixed answer.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "e2e/program.h"
#include "io/mapped_file.h"
#include "media/draw.h"
#include "media/image_decode.h"
#include "media/image_encode.h"
#include "support/fixed_answer.h"
#include "support/shared_dir.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A grey picture of 400 x 300.
std::string write_picture(const Scratch& scratch) {
  const std::string name = (scratch.path() / "picture.png").string();
  triptych::write_file(name, encode_png({400, 300, PoolVector<std::uint8_t>(400 * 300 * 3, 128)}));
  return name;
}

Image read_image(const std::string& name) { return decode_image(MappedFile::open(name)->bytes(), {}, name); }

Rgb8 at(const Image& image, int x, int y) {
  const std::uint8_t* px =
      image.rgb.data() + static_cast<std::size_t>(y) * image.row_bytes() + static_cast<std::size_t>(x) * 3;
  return {px[0], px[1], px[2]};
}

// The picture with one box at (40, 20), (80, 60) drawn on it, and nothing below and right of it.
void expect_drawn(const std::string& name) {
  const Image drawn = read_image(name);
  ASSERT_EQ(drawn.width_px, 400);
  ASSERT_EQ(drawn.height_px, 300);
  for (const auto& [x, y] : {std::pair(60, 20), std::pair(60, 60), std::pair(40, 40), std::pair(80, 40)})
    EXPECT_EQ(at(drawn, x, y), region_colour(0)) << x << "," << y;
  for (const auto& [x, y] : {std::pair(60, 40), std::pair(200, 200), std::pair(90, 70)})
    EXPECT_EQ(at(drawn, x, y), (Rgb8{128, 128, 128})) << x << "," << y;
}

TEST(Boxes, FuyuInJsonAndDrawn) {
  const Scratch scratch;
  const std::filesystem::path model = scratch.path() / "fuyu";
  write_fuyu(model, kSource, {"\u2581at", "<0x00>", "10", "20", "30", "40", "<0x01>", "."});
  const std::string picture = write_picture(scratch), drawn = (scratch.path() / "drawn.png").string();
  const RunResult result = triptych({"run", model.string(), "--image", picture, "--prompt",
                                     "What is in <box>20, 40, 60, 80</box>?\n", "--json", "--draw", drawn});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["text"], "at<box>20, 40, 60, 80</box>.");
  ASSERT_EQ(out["boxes"].size(), 1U);
  EXPECT_EQ(out["boxes"][0]["type"], "box");
  EXPECT_EQ(out["boxes"][0]["image"], 0);
  EXPECT_EQ(out["boxes"][0]["pixels"], json({40, 20, 80, 60}));
  EXPECT_EQ(out["boxes"][0]["thousandths"][2], 200.0);
  EXPECT_THAT(result.err, HasSubstr("1 box (40, 20) (80, 60)\n"));
  expect_drawn(drawn);
}

TEST(Boxes, FuyuRefusesACoordinateBeyondItsNumbers) {
  const Scratch scratch;
  const std::filesystem::path model = scratch.path() / "fuyu";
  write_fuyu(model, kSource, {"."});
  expect_bad_input(triptych({"run", model.string(), "--image", write_picture(scratch), "--prompt",
                             "<point>40000, 1</point>"}),
                   "coordinate 40000");
}

// The ids of a tokenizer.json's contents.
std::int32_t id_in(const json& tokenizer, const std::string& content) {
  for (const json& token : tokenizer["added_tokens"])
    if (token["content"] == content) return token["id"];
  return tokenizer["model"]["vocab"].at(content);
}

// The Qwen2-VL that ships, with the marks of boxes in its vocabulary and an answer with one box.
std::filesystem::path write_qwen2_vl(const Scratch& scratch) {
  const std::filesystem::path model = scratch.copy_of(kSource / "assets/models/scenes-qwen2-vl", "qwen2_vl");
  json tokenizer = json::parse(read_file(model / "tokenizer.json"));
  const std::string points = "(100,66),(200,200)";
  const std::vector<std::string> answer = {"<|object_ref_start|>", "a",    "<|object_ref_end|>",
                                           "<|box_start|>",        points, "<|box_end|>"};
  std::int32_t next = 473;
  for (const std::string& content : answer)
    if (content.size() > 1)
      tokenizer["added_tokens"].push_back({{"id", next++},
                                           {"content", content},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", content != points}});
  write_file(model / "tokenizer.json", tokenizer.dump());
  std::vector<std::int32_t> chain = {id_in(tokenizer, "\u010A")};  // the newline that ends the prompt
  for (const std::string& content : answer) chain.push_back(id_in(tokenizer, content));
  chain.push_back(id_in(tokenizer, "<|im_end|>"));
  make_decoder_follow(model / "model.safetensors",
                      {.embedding = "model.embed_tokens.weight",
                       .head = "lm_head.weight",
                       .norm = "model.norm.weight",
                       .outputs = {"self_attn.o_proj.weight", "mlp.down_proj.weight"}},
                      chain);
  return model;
}

TEST(Boxes, Qwen2VlInJsonAndDrawn) {
  const Scratch scratch;
  const std::filesystem::path model = write_qwen2_vl(scratch);
  const std::string picture = write_picture(scratch), drawn = (scratch.path() / "drawn.png").string();
  const std::vector<std::string> ask = {"run", model.string(), "--image", picture, "--prompt", "Where?"};
  std::vector<std::string> args = ask;
  args.insert(args.end(), {"--json", "--draw", drawn});
  const RunResult result = triptych(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["text"], "a(100,66),(200,200)");  // special tokens are no text
  ASSERT_EQ(out["boxes"].size(), 1U);
  EXPECT_EQ(out["boxes"][0]["label"], "a");
  EXPECT_EQ(out["boxes"][0]["thousandths"], json({100.0, 66.0, 200.0, 200.0}));
  EXPECT_EQ(out["boxes"][0]["pixels"], json({40, 19, 80, 60}));  // int(0.066 * 300) = 19
  EXPECT_THAT(result.err, HasSubstr("1 box \"a\" (40, 19) (80, 60)\n"));
  const Image image = read_image(drawn);
  EXPECT_EQ(at(image, 60, 60), region_colour(0));
  EXPECT_EQ(at(image, 60, 40), (Rgb8{128, 128, 128}));
  // In an answer that is shown as text nothing else changes.
  EXPECT_EQ(triptych(ask).out, "a(100,66),(200,200)\n");
}

TEST(Boxes, QwenVlKeepsItsMarksInTheText) {
  TRIPTYCH_SHARED_OR_SKIP(source, "golden/models/qwen_vl");
  const Scratch scratch;
  const std::filesystem::path model = scratch.path() / "qwen_vl";
  std::filesystem::create_directory(model);
  for (const char* name : {"model.safetensors", "tokenizer_config.json"}) {
    std::filesystem::copy_file(source / name, model / name);
    std::filesystem::permissions(model / name, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
  }
  // One more rank, the points of a box; all special tokens move up by one.
  write_file(model / "qwen.tiktoken", read_file(source / "qwen.tiktoken") + "KDEwMCw2NyksKDIwMCwyMDAp 436\n");
  json config = json::parse(read_file(source / "config.json"));
  config["visual"]["image_start_id"] = 651;
  write_file(model / "config.json", config.dump());
  // newline, <ref>, "star", </ref>, <box>, the points, </box>, <|im_end|>
  make_decoder_follow(model / "model.safetensors",
                      {.embedding = "transformer.wte.weight",
                       .head = "lm_head.weight",
                       .norm = "transformer.ln_f.weight",
                       .outputs = {"attn.c_proj.weight", "mlp.c_proj.weight"}},
                      {10, 645, 387, 646, 647, 436, 648, 439});
  const std::string picture = write_picture(scratch), drawn = (scratch.path() / "drawn.png").string();
  const RunResult result = triptych({"run", model.string(), "--image", picture, "--prompt",
                                     "Box the <ref>star</ref>.", "--json", "--draw", drawn});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["text"], "<ref>star</ref><box>(100,67),(200,200)</box>");
  ASSERT_EQ(out["boxes"].size(), 1U);
  EXPECT_EQ(out["boxes"][0]["label"], "star");
  EXPECT_EQ(out["boxes"][0]["pixels"], json({40, 20, 80, 60}));
  expect_drawn(drawn);
}

TEST(Boxes, DrawSaysWhatIsMissing) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "out.png").string();
  const std::string star = (kScenes / "scene1.png").string();
  const std::string llava = kModel.string(), qwen = (kSource / "assets/models/scenes-qwen2-vl").string();
  const auto run = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "run");
    return triptych(args);
  };
  expect_bad_input(run({qwen, "--prompt", "x", "--draw", out}), "--draw needs a picture");
  expect_bad_input(run({qwen, "--image", star, "-i", "--draw", out}), "--draw needs --prompt");
  expect_bad_input(run({qwen, "--image", star, "--prompt", "x", "--draw", "/nonexistent/out.png"}),
                   "--draw: /nonexistent/out.png: cannot write");
  expect_bad_input(run({qwen, "--image", star, "--prompt", "x", "--draw", scratch.path().string()}),
                   "it is a folder");
  expect_bad_input(run({llava, "--image", star, "--prompt", "x", "--draw", out}),
                   "answers of LlavaForConditionalGeneration name no boxes");
  const RunResult no_box = run({qwen, "--image", star, "--prompt", "Describe the image.", "--max-tokens", "2",
                                "--json", "--draw", out});
  EXPECT_EQ(no_box.exit_code, 1);
  EXPECT_THAT(no_box.err, HasSubstr("triptych: error: --draw: the answer names no box"));
  EXPECT_EQ(json::parse(no_box.out)["boxes"], json::array());
  EXPECT_FALSE(std::filesystem::exists(out));
  // Models that name no boxes have no such member.
  const RunResult plain = run({llava, "--image", star, "--prompt", "x", "--max-tokens", "1", "--json"});
  EXPECT_FALSE(json::parse(plain.out).contains("boxes")) << plain.err;
}

}  // namespace
}  // namespace triptych::test
