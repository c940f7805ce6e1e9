// Converted checkpoints: the same answers bit by bit, no private copies, and clear words for damaged ones.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include "e2e/program.h"
#include "io/safetensors.h"
#include "support/fixed_answer.h"
#include "support/shared_dir.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::filesystem::path convert(const Scratch& scratch, const std::filesystem::path& model,
                              std::vector<std::string> flags, const std::string& name = "out") {
  const auto out = scratch.path() / name;
  flags.insert(flags.begin(), {"convert", model.string(), out.string()});
  const RunResult result = triptych(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return out;
}

std::string logits_of(const Scratch& scratch, const std::filesystem::path& model, const std::string& prompt,
                      const std::filesystem::path& picture, const std::vector<std::string>& flags) {
  const std::string file = (scratch.path() / "trace.safetensors").string();
  std::vector<std::string> args = {"trace",   model.string(),   "--prompt", prompt,
                                   "--image", picture.string(), "--out",    file};
  args.insert(args.end(), flags.begin(), flags.end());
  const RunResult result = triptych(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const WeightTable table = read_safetensors(file);
  std::string out;
  for (const char* name : {"input_ids", "pixel_values", "logits"})
    if (const WeightEntry* entry = table.find(name))
      out.append(static_cast<const char*>(entry->view.cdata()), entry->view.size_bytes());
  return out;
}

// The converted directory's logits and answer are those of quantizing while loading.
void expect_same(const std::filesystem::path& model, const std::vector<std::string>& weights) {
  const Scratch scratch;
  const auto out = convert(scratch, model, weights);
  std::filesystem::path picture = model / "a.png";
  if (!std::filesystem::exists(picture)) picture = model / "c.png";
  const std::string prompt = "What is this?";
  const std::string expected = logits_of(scratch, model, prompt, picture, weights);
  EXPECT_EQ(logits_of(scratch, out, prompt, picture, {}), expected) << model;
  EXPECT_EQ(logits_of(scratch, out, prompt, picture, weights), expected) << model;  // said again
  EXPECT_EQ(logits_of(scratch, out, prompt, picture, {"--threads", "1"}), expected) << model;
  const auto answer = [&](const std::filesystem::path& from, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",      from.string(),  "--image",       picture.string(),
                                     "--prompt", prompt,         "--json",        "--max-tokens",
                                     "8",        "--ignore-eos", "--temperature", "0"};
    args.insert(args.end(), more.begin(), more.end());
    const RunResult result = triptych(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out)["token_ids"] : json();
  };
  EXPECT_EQ(answer(out, {}), answer(model, weights)) << model;
}

TEST(Convert, LayersThatDraftsLeaveOutAreFoundAndStored) {
  const Scratch scratch;
  const auto model = kSource / "assets/models/scenes-llava";
  const auto out = scratch.path() / "out";
  const RunResult converted = triptych({"convert", model.string(), out.string(), "--weights", "int8",
                                        "--self-draft", (kSource / "assets/eval/scenes").string(), "--json"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  const json report = json::parse(converted.out);
  json config = json::parse(read_file(out / "config.json"));
  EXPECT_EQ(config["self_draft"]["skipped_layers"], report["self_draft"]["skipped_layers"]);
  const auto answer = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "run",      out.string(),          "--image", (kSource / "assets/eval/scenes/0000.png").string(),
        "--prompt", "Describe the image.", "--json",  "--max-tokens",
        "60"};
    args.insert(args.end(), more.begin(), more.end());
    return triptych(args);
  };
  const RunResult plain = answer({});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  // Whatever was found: with a layer named, drafts leave it out.
  config["self_draft"] = {{"skipped_layers", {2}}, {"acceptance", 0.5}};
  write_file(out / "config.json", config.dump());
  const RunResult drafted = answer({"--speculative", "self-draft"});
  ASSERT_EQ(drafted.exit_code, 0) << drafted.err;
  EXPECT_EQ(json::parse(drafted.out)["text"], json::parse(plain.out)["text"]);
  config["self_draft"]["skipped_layers"] = {9};
  write_file(out / "config.json", config.dump());
  const RunResult wrong = answer({});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("skipped_layers"));
}

// Published as sharded .bin files beside a tiktoken vocabulary; here from either form of the small one.
TEST(Convert, QwenVlGivesTheSameBits) {
  TRIPTYCH_SHARED_OR_SKIP(published, "golden/models/qwen_vl");
  const Scratch scratch;
  const auto from_bin = scratch.path() / "bin";
  std::filesystem::create_directory(from_bin);
  for (const auto& entry : std::filesystem::directory_iterator(published))
    if (!entry.path().filename().string().ends_with(".safetensors"))
      std::filesystem::copy_file(entry.path(), from_bin / (entry.path().filename() == "pytorch_model.half.bin"
                                                               ? "pytorch_model.bin"
                                                               : entry.path().filename()));
  expect_same(published, {"--weights", "int4:g32:asym"});
  expect_same(published, {"--weights", "int8"});
  expect_same(from_bin, {"--weights", "int4:g64", "--vision-weights", "int4:channel"});
}

TEST(Convert, EveryFamilyGivesTheSameBits) {
  struct Case {
    const char* family;
    std::vector<std::string> weights;
  };
  const Case cases[] = {
      {"llava", {"--weights", "int4:g32"}},
      {"llava", {"--weights", "int8", "--lm-head", "auto"}},
      {"llava_next", {"--weights", "int4:g64:asym", "--vision-weights", "int4:channel"}},
      {"llava_onevision", {"--weights", "int4:g32", "--vision-weights", "int8"}},
      {"llava_onevision", {"--weights", "int8"}},
      {"qwen2_vl", {"--weights", "int4:g32:sym:bf16"}},
      {"qwen2_5_vl", {"--weights", "int8"}},
      {"qwen3_vl", {"--weights", "int8"}},
      {"qwen3_vl", {"--weights", "int4:g32"}},
      {"fuyu", {"--weights", "int4:g32:two-level", "--lm-head", "int4:g32"}},
      {"blip2", {"--weights", "int8"}},
      {"blip2", {"--weights", "int4:g32:asym", "--vision-weights", "auto"}},
      {"instructblip", {"--vision-weights", "int8"}},
      {"instructblip", {"--weights", "int4:g32"}},
      {"llava", {"--weights", "bf16"}},
      {"llava", {"--weights", "nf4", "--vision-weights", "int8:g32"}},
      {"llava_variants/siglip_qwen2_tied", {"--weights", "int4:g128:asym"}},
      {"llava_variants/yarn_biases", {"--weights", "int8"}},
  };
  for (const Case& one : cases) expect_same(kSource / "tests/data/golden" / one.family, one.weights);
}

TEST(Convert, TheOutputIsCompleteAndWorksWithEveryVerb) {
  const Scratch scratch;
  const auto out = convert(scratch, kModel, {"--weights", "int4:g32"});
  const std::string model = out.string();
  const std::string picture = (kScenes / "scene1.png").string();
  const RunResult before = triptych({"run", kModel.string(), "--weights", "int4:g32", "--image", picture,
                                     "--prompt", "Describe the image.", "--json"});
  const RunResult after =
      triptych({"run", model, "--image", picture, "--prompt", "Describe the image.", "--json"});
  ASSERT_EQ(after.exit_code, 0) << after.err;
  EXPECT_EQ(json::parse(after.out)["text"], json::parse(before.out)["text"]);
  EXPECT_EQ(triptych({"verify", model, "--golden", kScenes.string(), "--summary"}).exit_code, 0);
  const RunResult eval = triptych(
      {"eval", model, "--data", (kSource / "assets/eval/scenes").string(), "--limit", "20", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_EQ(json::parse(eval.out)["weights"], "int4:g32:sym");
  EXPECT_EQ(json::parse(eval.out)["vision_weights"], "int8:channel");
  EXPECT_EQ(json::parse(eval.out)["lm_head"], "int8:channel");
  const RunResult bench =
      triptych({"bench", model, "--prompt-tokens", "80", "--decode", "2", "--repeat", "1", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_EQ(json::parse(bench.out)["weights"], "int4:g32:sym");
  const RunResult inspected = triptych({"inspect", model, "--json", "--verify"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const json report = json::parse(inspected.out);
  EXPECT_EQ(report["checksums"], "sound");
  EXPECT_EQ(report["quantized"]["stored"], true);
  EXPECT_EQ(report["quantized"]["language"], "int4:g32:sym");
  EXPECT_EQ(report["quantized"]["vision"], "int8:channel");
  std::int64_t n = 0, mapped = 0, owned = 0;
  for (const json& part : report["parts"]) {
    n += part["parameters"].get<std::int64_t>();
    mapped += part["mapped_bytes"].get<std::int64_t>();
    owned += part["private_bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(n, 1910912);                    // as the original
  EXPECT_LT(owned, mapped / 20);            // norms and tables only: no copy of a matrix
  EXPECT_LT(mapped, 1910912 * 2 * 7 / 10);  // 16 bits before
}

TEST(Convert, TensorsAreAligned) {
  const Scratch scratch;
  const auto out = convert(scratch, kModel, {"--weights", "int4:g32"});
  const std::string bytes = read_file(out / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  EXPECT_EQ((header_bytes + 8) % 4096, 0U);
  const json header = json::parse(bytes.substr(8, header_bytes));
  int n_panels = 0;
  for (const auto& [name, tensor] : header.items())
    if (name.ends_with(".panels") || name.ends_with("_scales") || name.ends_with("_factors")) {
      EXPECT_EQ(tensor["data_offsets"][0].get<std::uint64_t>() % 64, 0U) << name;
      n_panels += name.ends_with(".panels") ? 1 : 0;
    }
  EXPECT_GT(n_panels, 10);
}

// The file's tensors in order. Of the model that ships all are small, so a wider one is made.
TEST(Convert, SmallTensorsComeLast) {
  constexpr std::uint64_t kSmall_bytes = 256 * 1024;
  const Scratch scratch;
  const auto model = scratch.path() / "fuyu";
  write_fuyu(model, kSource, {"."}, 512);
  const auto out = convert(scratch, model, {"--weights", "int8"});
  const std::string bytes = read_file(out / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  struct Stored {
    std::uint64_t size_bytes;
    std::string name;
  };
  std::map<std::uint64_t, Stored> by_offset;
  const json header = json::parse(bytes.substr(8, header_bytes));
  for (const auto& [name, tensor] : header.items()) {
    const auto begin = tensor["data_offsets"][0].get<std::uint64_t>();
    by_offset[begin] = {tensor["data_offsets"][1].get<std::uint64_t>() - begin, name};
  }
  std::uint64_t large_end = 0, n_large = 0;
  for (const auto& [begin, tensor] : by_offset)
    if (tensor.size_bytes > kSmall_bytes) {
      EXPECT_EQ(begin, large_end) << tensor.name << " stands behind a small tensor";
      large_end = begin + tensor.size_bytes;
      ++n_large;
    }
  EXPECT_GE(n_large, 3U);  // table of tokens, attention, head
  EXPECT_GE(by_offset.size() - n_large, 10U);
  // A matrix of exactly the limit is small.
  const auto limit = std::find_if(by_offset.begin(), by_offset.end(), [](const auto& entry) {
    return entry.second.name.ends_with("attn.dense.weight.panels");
  });
  ASSERT_NE(limit, by_offset.end());
  EXPECT_EQ(limit->second.size_bytes, kSmall_bytes);
  const RunResult answer =
      triptych({"run", out.string(), "--image", (kScenes / "scene1.png").string(), "--prompt", "x\n"});
  EXPECT_EQ(answer.out, ".\n") << answer.err;
}

TEST(Convert, Refusals) {
  const Scratch scratch;
  const auto out = convert(scratch, kModel, {"--weights", "int8"});
  const std::string model = kModel.string(), there = out.string();
  expect_bad_input(triptych({"convert", model, there, "--weights", "int8"}),
                   "not empty; --force replaces it");
  expect_bad_input(triptych({"convert", there, (scratch.path() / "x").string(), "--weights", "int4"}),
                   "converted already");
  expect_bad_input(triptych({"convert", model, (scratch.path() / "x").string()}), "--weights");
  expect_bad_input(triptych({"run", there, "--weights", "int4", "--prompt", "x"}), "stored as int8:channel");
  expect_bad_input(triptych({"run", there, "--weights", "fp32", "--prompt", "x"}), "stored as int8:channel");
  expect_bad_input(triptych({"inspect", model, "--verify"}), "holds no checksums");
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "x"));
  EXPECT_EQ(triptych({"convert", model, there, "--weights", "int4", "--force"}).exit_code, 0);
  EXPECT_THAT(triptych({"inspect", there}).out, HasSubstr("int4:g128:sym"));
  // A folder that cannot be written to, as a full disk: nothing is left.
  const RunResult full = run_program(
      {"bash", "-c", "ulimit -f 8; trap '' XFSZ; exec \"$0\" convert \"$1\" \"$2\" --weights int8",
       program_path(), model, (scratch.path() / "full").string()});
  EXPECT_NE(full.exit_code, 0);
  EXPECT_THAT(full.err, HasSubstr("cannot write: File too large"));
  int n_left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    n_left += entry.path().filename() != "out" ? 1 : 0;
  EXPECT_EQ(n_left, 0);
}

// Reference values are of the checkpoint as it was: golden.json does not come along without its tensors.
TEST(Convert, ReferenceValuesStayBehind) {
  const Scratch scratch;
  const std::string out = (scratch.path() / "out").string();
  const RunResult converted = triptych({"convert", kModel.string(), out, "--weights", "int8"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_THAT(converted.out, HasSubstr("golden.json is left out"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "out/golden/golden.json"));
  expect_bad_input(triptych({"verify", out}), "no golden.json");
  const RunResult verified =
      triptych({"verify", out, "--golden", kModel.string(), "--tolerance", "0.2", "--summary"});
  EXPECT_NE(verified.exit_code, 2) << verified.err;
  EXPECT_EQ(verified.err, "");
}

// Activations on grids of a calibration, and those of each row again.
TEST(Convert, Calibration) {
  const Scratch scratch;
  const auto scene = kSource / "assets/eval/scenes/0000.png";
  const auto pictures = scratch.path() / "pictures";
  std::filesystem::create_directory(pictures);
  for (const char* name : {"a.png", "b.PNG"}) std::filesystem::copy_file(scene, pictures / name);
  write_file(pictures / "notes.txt", "no picture");
  const auto out = convert(scratch, kModel, {"--weights", "int8", "--calibrate", pictures.string()});
  const std::string picture = scene.string();
  const auto logits = [&](const std::filesystem::path& model, const std::vector<std::string>& flags) {
    return logits_of(scratch, model, "What is this?", picture, flags);
  };
  const std::string dynamic = logits(kModel, {"--weights", "int8"});
  const std::string stored = logits(out, {});
  EXPECT_NE(stored, dynamic);
  EXPECT_EQ(logits(out, {"--vision-activations", "static"}), stored);
  EXPECT_EQ(logits(out, {"--vision-activations", "dynamic"}), dynamic);
  EXPECT_EQ(
      triptych({"run", out.string(), "--image", picture, "--prompt", "x", "--max-tokens", "1"}).exit_code, 0);
  EXPECT_THAT(triptych({"inspect", out.string()}).out, HasSubstr("activations of the tower: static"));
  int n_static = 0;
  const json index = json::parse(read_file(out / "triptych.json"));
  for (const json& linear : index["linears"]) {
    // No model reads the tower's last layer.
    const std::string name = linear["name"];
    const bool is_static =
        name.find("language_model") == std::string::npos && name.find("layers.3.") == std::string::npos;
    EXPECT_EQ(linear.contains("activation_quant"), is_static) << name;
    n_static += linear.contains("activation_quant") ? 1 : 0;
  }
  EXPECT_GT(n_static, 3);

  const std::string model = kModel.string(), x = (scratch.path() / "x").string();
  expect_bad_input(
      triptych({"run", model, "--weights", "int8", "--vision-activations", "static", "--prompt", "x"}),
      "--calibrate FOLDER finds them");
  const auto plain = convert(scratch, kModel, {"--weights", "int8"}, "plain");
  expect_bad_input(triptych({"run", plain.string(), "--vision-activations", "static", "--prompt", "x"}),
                   "--calibrate FOLDER finds them");
  const auto refused = [&](std::vector<std::string> flags, const std::string& why) {
    flags.insert(flags.begin(), {"convert", model, x});
    expect_bad_input(triptych(flags), why);
    EXPECT_FALSE(std::filesystem::exists(x));
  };
  const std::string from = pictures.string();
  refused({"--weights", "int4", "--vision-weights", "int4", "--calibrate", from},
          "need --vision-weights int8");
  refused({"--weights", "bf16", "--calibrate", from}, "need --vision-weights int8");
  refused({"--weights", "int8", "--calibrate", from, "--vision-activations", "dynamic"}, "does not use");
  refused({"--weights", "int8", "--calibrate", from + "/none"}, "No such file");
  std::filesystem::create_directory(scratch.path() / "empty");
  refused({"--weights", "int8", "--calibrate", (scratch.path() / "empty").string()}, "no picture in it");
  write_file(pictures / "a.png", "broken");
  refused({"--weights", "int8", "--calibrate", from}, "a.png");
}

class DamagedTest : public testing::Test {
 protected:
  DamagedTest() : out_(convert(scratch_, kModel, {"--weights", "int4:g32"})) {}
  RunResult run() { return triptych({"run", out_.string(), "--prompt", "x", "--max-tokens", "1"}); }
  void edit(const char* file, const std::function<void(json&)>& change) {
    json document = json::parse(read_file(out_ / file));
    change(document);
    write_file(out_ / file, document.dump());
  }
  // The index changed by someone who knows the checksum, too.
  void edit_index(const std::function<void(json&)>& change) {
    edit("triptych.json", change);
    const RunResult sum = run_program({"b2sum", "-l", "256", (out_ / "triptych.json").string()});
    ASSERT_EQ(sum.exit_code, 0);
    edit("config.json", [&](json& d) { d["quantization_config"]["index_blake2b"] = sum.out.substr(0, 64); });
  }
  Scratch scratch_;
  std::filesystem::path out_;
};

TEST_F(DamagedTest, OtherVersions) {
  for (const int version : {1, 3}) {
    edit_index([&](json& d) { d["format_version"] = version; });
    expect_bad_input(run(), "this program reads version 2");
  }
  for (const int version : {1, 7}) {
    edit("config.json", [&](json& d) { d["quantization_config"]["format_version"] = version; });
    expect_bad_input(run(), "this program reads version 2");
  }
}

TEST_F(DamagedTest, ChangedIndexAndHeader) {
  edit("triptych.json", [](json& d) { *d["blake2b"].begin() = std::string(64, '0'); });
  expect_bad_input(run(), "checksum");
}

TEST_F(DamagedTest, IndexThatDoesNotFit) {
  const std::string before = read_file(out_ / "triptych.json");
  const auto changed = [&](const std::function<void(json&)>& change) {
    write_file(out_ / "triptych.json", before);
    edit_index(change);
    return run();
  };
  expect_bad_input(changed([](json& d) { d["linears"][0]["n_in"] = 24; }), "expected a linear");
  expect_bad_input(changed([](json& d) { d["linears"][0]["n_rows"][0] = 1; }), "n_rows");
  expect_bad_input(changed([](json& d) { d["linears"][0]["format"] = "int3"; }), "int3");
  expect_bad_input(changed([](json& d) { d["linears"][0]["format"] = "int4:g32:asym"; }), "panels: expected");
  expect_bad_input(changed([](json& d) { d["linears"][0]["arrays"].erase(0); }), "panels");
  expect_bad_input(changed([](json& d) { d["linears"][1] = d["linears"][0]; }), "twice");
  expect_bad_input(changed([](json& d) { d["linears"].erase(0); }), "");
  expect_bad_input(changed([](json& d) { d["blake2b"].erase(d["blake2b"].begin()); }), "tensors");
}

TEST_F(DamagedTest, ActivationQuantization) {
  const auto with_quant = [&](const json& quant) {
    edit_index([&](json& d) { d["linears"][0]["activation_quant"] = quant; });
    return run();
  };
  expect_bad_input(with_quant({{"scale", 0}, {"offset", 1}}), "scale:");
  expect_bad_input(with_quant({{"scale", -1}, {"offset", 1}}), "scale:");
  expect_bad_input(with_quant({{"scale", 1e-42}, {"offset", 1}}), "scale:");
  expect_bad_input(with_quant({{"scale", 1}, {"offset", 1e300}}), "offset:");
  expect_bad_input(with_quant({{"scale", 1}}), "offset");
  expect_bad_input(with_quant(3), "activation_quant");
}

TEST_F(DamagedTest, WeightFile) {
  const std::string bytes = read_file(out_ / "model.safetensors");
  write_file(out_ / "model.safetensors", bytes.substr(0, bytes.size() - 64));
  expect_bad_input(run(), "model.safetensors");
  write_file(out_ / "model.safetensors", bytes.substr(0, 100));
  expect_bad_input(run(), "cut short");
  std::string other = bytes;
  other[other.find("\"F16\"") + 1] = 'B';  // BF16 does not fit: any change of the header
  write_file(out_ / "model.safetensors", other);
  EXPECT_EQ(run().exit_code, 2);
  // A bit of a weight: found when asked for.
  other = bytes;
  other[other.size() / 2] = static_cast<char>(other[other.size() / 2] ^ 1);
  write_file(out_ / "model.safetensors", other);
  EXPECT_EQ(run().exit_code, 0);
  expect_bad_input(triptych({"inspect", out_.string(), "--verify"}), "1 of ");
  std::filesystem::remove(out_ / "triptych.json");
  expect_bad_input(run(), "triptych.json is missing");
}

TEST_F(DamagedTest, ScalesThatAreNoNumbers) {
  std::string bytes = read_file(out_ / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const json header = json::parse(bytes.substr(8, header_bytes));
  for (const auto& [name, tensor] : header.items())
    if (name.ends_with("column_scales")) {
      const float bad = std::nanf("");
      std::memcpy(bytes.data() + 8 + header_bytes + tensor["data_offsets"][0].get<std::size_t>(), &bad, 4);
      break;
    }
  write_file(out_ / "model.safetensors", bytes);
  expect_bad_input(run(), "column_scales");
}

// Where the checksums are right all the same, as of a program that wrote such scales.
TEST_F(DamagedTest, ScalesInPanelsThatAreNoNumbers) {
  const std::string sound = read_file(out_ / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, sound.data(), 8);
  const json header = json::parse(sound.substr(8, header_bytes));
  const json index = json::parse(read_file(out_ / "triptych.json"));
  json linear;
  for (const json& one : index["linears"])
    if (one["format"] == "int4:g32:sym" && one["n_in"].get<int>() >= 64) linear = one;
  ASSERT_FALSE(linear.is_null());
  const std::string tensor =
      linear["name"].get<std::string>() + linear["part"].get<std::string>() + ".panels";
  const auto begin = header[tensor]["data_offsets"][0].get<std::size_t>() + 8 + header_bytes;
  const auto end = header[tensor]["data_offsets"][1].get<std::size_t>() + 8 + header_bytes;
  for (const std::uint16_t bad : std::initializer_list<std::uint16_t>{
           0x7c00, 0xfc00, 0x7e01}) {  // infinities and a NaN: group 1, channel 3
    std::string bytes = sound;
    std::memcpy(bytes.data() + begin + (32 / 8 * 256 + 128) + 32 / 8 * 256 + 2 * 3, &bad, 2);
    write_file(out_ / "model.safetensors", bytes);
    write_file(scratch_.path() / "panels", bytes.substr(begin, end - begin));
    expect_bad_input(triptych({"inspect", out_.string(), "--verify"}), "1 of ");
    const RunResult sum = run_program({"b2sum", "-l", "256", (scratch_.path() / "panels").string()});
    ASSERT_EQ(sum.exit_code, 0);
    edit_index([&](json& d) { d["blake2b"][tensor] = sum.out.substr(0, 64); });
    expect_bad_input(triptych({"inspect", out_.string(), "--verify"}),
                     "array panels: the scale of channel 3, group 1 is ");
  }
}

}  // namespace
}  // namespace triptych::test
