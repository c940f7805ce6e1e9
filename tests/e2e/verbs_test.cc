// The other verbs, with the model that ships.
#include <algorithm>
#include <functional>

#include <nlohmann/json.hpp>

#include "e2e/program.h"
#include "io/safetensors.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Verify, TheModelThatShipsIsWhatTheReferenceSays) {
  const RunResult table = triptych({"verify", kModel.string()});
  EXPECT_EQ(table.exit_code, 0) << table.out << table.err;
  EXPECT_THAT(table.out, HasSubstr("model.vision_tower.embeddings.patch_embedding"));
  EXPECT_THAT(table.out, HasSubstr("pass: 4 of 4 cases pass"));
  const RunResult result = triptych({"verify", kModel.string(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_TRUE(out["passed"]);
  ASSERT_EQ(out["cases"].size(), 4U);
  const json& first = out["cases"][0];
  EXPECT_TRUE(first["prompt_equal"]);
  EXPECT_TRUE(first["ids_equal"]);
  EXPECT_EQ(first["greedy"]["equal"], first["greedy"]["steps"]);
  EXPECT_EQ(first["missing_taps"].size(), 0U);
  EXPECT_TRUE(first["first_diverging_tap"].is_null());
  EXPECT_LE(first["logits"]["relative"], 1e-4);
  EXPECT_GE(first["taps"].size(), 19U);
}

TEST(Verify, ADifferenceFails) {
  const Scratch scratch;
  const auto golden = scratch.copy_of(kScenes, "golden");
  const auto change = [&](const std::function<void(json&)>& edit) {
    json document = json::parse(read_file(kScenes / "golden.json"));
    edit(document);
    write_file(golden / "golden.json", document.dump());
    return triptych({"verify", kModel.string(), "--golden", golden.string()});
  };
  RunResult result = change([](json& d) { d["cases"][1]["input_ids"][2] = 7; });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("input_ids[2] is 312, the reference has 7"));
  result = change(
      [](json& d) { d["cases"][1]["prompt"] = "USER: <image>\nIs the star small or large?  ASSISTANT:"; });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("differs at byte 42"));
  result = change([](json& d) { d["cases"][1]["generated_ids"][0] = 9; });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("first different at step 0"));
  result = change([](json& d) { d["cases"][1]["text"] = "large"; });
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("answer: FAIL"));
  // Another picture: everything from the pixels on.
  std::filesystem::copy_file(kScenes / "scene0.png", golden / "scene1.png",
                             std::filesystem::copy_options::overwrite_existing);
  result = change([](json&) {});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("first diverging tap: model.vision_tower.embeddings.patch_embedding"));
  EXPECT_THAT(result.out, HasSubstr("FAIL: 3 of 4 cases pass"));
}

TEST(Verify, SixteenBitsStandBesideFloat32) {
  const std::string model = kModel.string();  // of float16 weights, which bfloat16 rounds
  const RunResult result = triptych({"verify", model, "--dtype", "bf16", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["dtype"], "bf16");
  EXPECT_DOUBLE_EQ(out["tolerance"], 5e-2);
  for (const json& one : out["cases"]) {
    EXPECT_LE(one["logits"]["relative"], 5e-2);
    EXPECT_GT(one["logits"]["relative"], 1e-4);
    EXPECT_LE(one["in_fp32"]["logits"]["relative"], 1e-5);
    const json& greedy = one["greedy"];
    EXPECT_EQ(greedy["equal_where_margin_exceeds_error"], greedy["margin_exceeds_error"]);
    EXPECT_GT(greedy["margin_exceeds_error"], 0);
    EXPECT_EQ(one["in_fp32"]["greedy"]["equal"], greedy["steps"]);
  }
  const RunResult table = triptych({"verify", model, "--dtype", "fp16"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, testing::AllOf(HasSubstr("in fp32"), HasSubstr("logits fp32"),
                                        HasSubstr("beyond error"), HasSubstr("pass: 4 of 4 cases pass")));
  // A bound that 16 bits cannot hold; and without float32 beside.
  EXPECT_EQ(triptych({"verify", model, "--dtype", "bf16", "--tolerance", "1e-4"}).exit_code, 1);
  const RunResult alone = triptych({"verify", model, "--dtype", "bf16", "--no-baseline", "--summary"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.out, testing::Not(HasSubstr("fp32")));
}

TEST(Verify, WithoutGoldenFiles) {
  expect_bad_input(triptych({"verify", kModel.string(), "--golden", "/tmp"}), "golden.json");
}

TEST(Trace, WritesWhatTheGoldenFilesHold) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "t.safetensors").string();
  const RunResult result = triptych({"trace", kModel.string(), "--image", (kScenes / "scene0.png").string(),
                                     "--prompt", "Describe the image.", "--out", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const WeightTable ours = read_safetensors(file);
  const WeightTable golden = read_safetensors(kScenes / "scene0.safetensors");
  EXPECT_EQ(ours.at("input_ids").view.shape(), golden.at("input.input_ids").view.shape());
  EXPECT_EQ(ours.at("pixel_values").view.shape(), golden.at("input.pixel_values").view.shape());
  EXPECT_EQ(ours.at("logits").view.shape(), golden.at("logits").view.shape());
  int n_taps = 0;
  for (const WeightEntry& entry : golden) {
    if (!entry.name.starts_with("tap.")) continue;
    ++n_taps;
    ASSERT_TRUE(ours.contains(entry.name)) << entry.name;
    EXPECT_EQ(ours.at(entry.name).view.numel(), entry.view.numel()) << entry.name;
    if (entry.view.rank() <= 3) {
      EXPECT_EQ(ours.at(entry.name).view.shape(), entry.view.shape()) << entry.name;
    }
  }
  EXPECT_GE(n_taps, 19);
  const auto* a = ours.at("input_ids").view.as<std::int64_t>();
  const auto* b = golden.at("input.input_ids").view.as<std::int64_t>();
  EXPECT_TRUE(std::equal(a, a + ours.at("input_ids").view.numel(), b));
}

TEST(Eval, AccuracyAndControl) {
  const std::string data = (kSource / "assets/eval/scenes").string();
  const RunResult result = triptych({"eval", kModel.string(), "--data", data, "--limit", "60", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["total"]["n"], 60);
  EXPECT_GE(out["total"]["accuracy"], 0.9);
  EXPECT_LT(out["total"]["control_accuracy"], 0.5);
  EXPECT_LT(out["total"]["mean_logprob"], 0.0);
  EXPECT_GT(out["total"]["mean_logprob"], -0.2);
  EXPECT_TRUE(out["kinds"].contains("Describe the"));
  EXPECT_EQ(out["mistakes"].size(), 60U - out["total"]["right"].get<std::size_t>());
  // The model errs now and then: all of 200 would be more than it can.
  const RunResult strict = triptych({"eval", kModel.string(), "--data", data, "--limit", "200",
                                     "--no-control", "--no-likelihood", "--min-accuracy", "1"});
  EXPECT_EQ(strict.exit_code, 1);
  EXPECT_THAT(strict.out, HasSubstr("exact match"));
  expect_bad_input(triptych({"eval", kModel.string(), "--data", "/nowhere"}), "questions.jsonl");
}

TEST(Inspect, ShowsPartsAndEstimates) {
  const RunResult result = triptych({"inspect", kModel.string(), "--json", "--tensors"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["architecture"], "LlavaForConditionalGeneration");
  EXPECT_TRUE(out["supported"]);
  EXPECT_EQ(out["dtypes"]["F16"]["elements"], 1910912);  // training.json: parameters
  std::int64_t n = 0;
  for (const json& part : out["parts"]) n += part["parameters"].get<std::int64_t>();
  EXPECT_EQ(n, 1910912);
  EXPECT_EQ(out["estimate"]["kv_bytes_per_token"], 2 * 4 * 4 * 32 * 2);
  // Beside quantized weights int8, with a scale a head, unless another type is asked for.
  const auto bytes_with = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"inspect", kModel.string(), "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return json::parse(triptych(args).out)["estimate"]["kv_bytes_per_token"].get<int>();
  };
  EXPECT_EQ(bytes_with({"--weights", "int4:g32"}), 2 * 4 * 4 * (32 + 2));
  EXPECT_EQ(bytes_with({"--weights", "bf16"}), 2 * 4 * 4 * 32 * 2);
  EXPECT_EQ(bytes_with({"--weights", "int8", "--kv-cache-dtype", "fp16"}), 2 * 4 * 4 * 32 * 2);
  EXPECT_GT(out["estimate"]["ms_per_token_full_context"], out["estimate"]["ms_per_token_first"]);
  EXPECT_EQ(out["tensors"].size(), out["dtypes"]["F16"]["tensors"].get<std::size_t>());
  EXPECT_THAT(triptych({"inspect", kModel.string()}).out, HasSubstr("keys and values"));
}

// Refused as run refuses it, not estimated.
TEST(Inspect, ContextsThatTheModelIsNotTrainedFor) {
  const std::string message = "--ctx-size 1000000: the model was trained for ";
  for (const char* verb : {"run", "inspect"}) {
    std::vector<std::string> args = {verb, kModel.string(), "--ctx-size", "1000000"};
    if (std::string(verb) == "run") args.insert(args.end(), {"--prompt", "x"});
    expect_bad_input(triptych(args), message);
  }
}

// Weights of 4 MB stay in the caches of most machines: what is read there bounds the time, not the memory.
TEST(Inspect, BoundsOfModelsThatCachesHold) {
  const RunResult result = triptych({"inspect", kModel.string(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json estimate = json::parse(result.out)["estimate"];
  const auto number = [&](const char* key) { return estimate[key].get<double>(); };
  EXPECT_GE(number("read_bytes_per_s_first"), number("read_bytes_per_s"));
  EXPECT_GE(number("read_bytes_per_s_full_context"), number("read_bytes_per_s"));
}

TEST(Inspect, ModelsItCannotRun) {
  const Scratch scratch;
  std::filesystem::copy(kModel, scratch.path() / "m");
  json config = json::parse(read_file(kModel / "config.json"));
  config["architectures"] = {"LlavaForConditionalGenerationX"};
  write_file(scratch.path() / "m/config.json", config.dump());
  const RunResult result = triptych({"inspect", (scratch.path() / "m").string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("nearest is LlavaForConditionalGeneration"));
  EXPECT_THAT(result.out, HasSubstr("F16"));
  expect_bad_input(triptych({"inspect", "/nowhere"}), "/nowhere");
}

TEST(Bench, TableAndJson) {
  const RunResult result = triptych({"bench", kModel.string(), "--prompt-tokens", "80", "--decode", "4",
                                     "--repeat", "1", "--width", "320", "--height", "200", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  std::vector<std::string> names;
  for (const json& stage : out["stages"]) {
    names.push_back(stage["name"]);
    EXPECT_GT(stage["ms"], 0.0);
    if (stage.contains("roofline_share")) {
      EXPECT_GT(stage["roofline_share"], 0.0);
    }
  }
  EXPECT_THAT(names,
              testing::ElementsAre("image decode", "preprocess", "tower", "projector", "prefill", "decode"));
  EXPECT_GT(out["first_token_ms"], 0.0);
  EXPECT_GT(out["limits"]["read_bytes_per_s"], 1e8);
  const RunResult table = triptych({"bench", "--shapes", "llava-1.5-7b", "--layers", "1", "--weights", "bf16",
                                    "--decode", "2", "--repeat", "1"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("llava-1.5-7b, random bf16 weights, 1 of 32 layers"));
  EXPECT_THAT(table.out, HasSubstr("of the roofline"));
}

TEST(Bench, LimitsOfOneThreadAndOfAll) {
  const RunResult result = triptych({"bench", "--limits", "--threads", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["threads"], 2);
  EXPECT_EQ(out["one_thread"]["threads"], 1);
  for (const json& part : {out, out["one_thread"]})
    for (const char* name : {"fp32_flops_per_s", "read_bytes_per_s"}) {
      EXPECT_GT(part[name], 1e8) << name;
      EXPECT_LE(part["range"][name]["lowest"], part[name]) << name;
      EXPECT_GE(part["range"][name]["highest"], part[name]) << name;
    }
  const RunResult table = triptych({"bench", "--limits", "--threads", "1"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("read from memory"));
  EXPECT_THAT(table.out, HasSubstr("chosen for this processor: bfloat16 products "));
  EXPECT_GE(out["tuning"]["int4_streamed_rows"], 12);
  EXPECT_GE(out["tuning"]["panel_group_bytes"], 512 * 1024);
}

TEST(Bench, SweepComparisonAndReport) {
  const Scratch scratch;
  const std::string earlier = (scratch.path() / "earlier.json").string();
  const std::string html = (scratch.path() / "report.html").string();
  const std::vector<std::string> common = {"--prompt-tokens", "80",  "--decode", "4",   "--repeat",  "1",
                                           "--width",         "112", "--height", "112", "--threads", "2"};
  const auto bench = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"bench", kModel.string()});
    args.insert(args.end(), common.begin(), common.end());
    return triptych(args);
  };
  RunResult result = bench({"--weights", "fp32,int8", "--batch", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  write_file(earlier, result.out);
  const json swept = json::parse(result.out);
  ASSERT_EQ(swept["runs"].size(), 2U);
  EXPECT_EQ(swept["runs"][1]["weights"], "int8");
  EXPECT_EQ(swept["runs"][1]["stages"].back()["name"], "decode of 3");
  EXPECT_GT(swept["runs"][0]["question_first_token_ms"], 0.0);
  EXPECT_LT(swept["runs"][1]["weight_bytes"]["language"], swept["runs"][0]["weight_bytes"]["language"]);

  result = bench({"--weights", "int8", "--compare", earlier, "--html", html});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("earlier / now"));
  EXPECT_THAT(result.out, HasSubstr("self_attn.q_proj+k_proj+v_proj"));
  const std::string page = read_file(html);
  for (const char* part : {"mlp.down_proj", "self_attn.o_proj", "mlp.gate_proj+up_proj", "lm_head",
                           "patch_embedding", "mlp.fc1", "multi_modal_projector.linear_1", "attention",
                           "class=\"roofline\"", "tower and projector", "thread 1"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_TRUE(page.ends_with("</html>\n"));

  result = bench({"--weights", "fp32,int8", "--only", "question"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("int8"));
  write_file(earlier, "{\"model\": 3}");
  expect_bad_input(bench({"--compare", earlier}), "earlier.json");
  expect_bad_input(bench({"--compare", "/nowhere.json"}), "/nowhere.json");
  expect_bad_input(bench({"--weights", "fp32,int7"}), "int7");
  expect_bad_input(bench({"--weights", "fp32,"}), "--weights");
  expect_bad_input(bench({"--only", "batch"}), "--batch");
  expect_bad_input(bench({"--only", "everything"}), "everything");
  expect_bad_input(bench({"--only", "question", "--html", html}), "answer");
  expect_bad_input(bench({"--html", scratch.path().string()}), scratch.path().string());
}

TEST(Bench, TracesOfRequests) {
  const Scratch scratch;
  const std::string trace = (scratch.path() / "trace.jsonl").string();
  const std::string html = (scratch.path() / "report.html").string();
  const auto make = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "--make-trace", trace, "--requests", "6", "--picture-sides", "64,128",
                               "--prompt-range", "4,40", "--answer-range", "2,8"});
    return triptych(more);
  };
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", kModel.string(), "--serve-trace", trace});
    return triptych(more);
  };
  ASSERT_EQ(make({"--seed", "3"}).exit_code, 0);
  const std::string first = read_file(trace);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 6);
  ASSERT_EQ(make({"--seed", "3"}).exit_code, 0);
  EXPECT_EQ(read_file(trace), first);
  RunResult result = serve({"--clients", "3", "--html", html});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"6 answered, 0 failed", "3 clients in a closed loop", "first token", "0 of "})
    EXPECT_THAT(result.out, HasSubstr(part));
  const std::string page = read_file(html);
  for (const char* part : {"engine 0", "prepare", "Cache blocks in use", "class=\"roofline\"", "decode"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(serve({"--sequential"}).exit_code, 0);
  EXPECT_EQ(serve({"--rate", "200", "--seed", "4"}).exit_code, 0);
  // A text for a model with a tokenizer, and a picture file beside the trace.
  std::filesystem::copy(kScenes / "scene1.png", scratch.path() / "one.png");
  write_file(trace,
             "{\"prompt\": \"Describe the image.\", \"pictures\": [{\"file\": \"one.png\"}], "
             "\"answer_tokens\": 4}\n");
  result = serve({"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["answer_tokens"], 4);
  EXPECT_EQ(serve({"--ctx-size", "8"}).exit_code, 1) << "no request fits";

  expect_bad_input(serve({"--clients", "2", "--sequential"}), "--sequential");
  expect_bad_input(serve({"--html", trace}), "--html");
  expect_bad_input(make({"--answer-range", "9,2"}), "--answer-range");
  expect_bad_input(make({"--picture-sides", "64,x"}), "--picture-sides");
  expect_bad_input(triptych({"bench", "--serve-trace", trace}), "--shapes");
  expect_bad_input(triptych({"bench", "--memory", "--serve-trace", trace}), "--serve-trace");
  write_file(trace, "{\"prompt_tokens\": 3}\n");
  expect_bad_input(serve({}), "answer_tokens");
  expect_bad_input(triptych({"bench", kModel.string(), "--serve-trace", "/nowhere.jsonl"}), "/nowhere.jsonl");
}

TEST(Program, WeightsAreQuantizedByFlag) {
  const std::string model = kModel.string();
  const RunResult checked =
      triptych({"verify", model, "--weights", "int8", "--lm-head", "auto", "--summary"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("tolerance 2.0e-01"));
  const RunResult unknown = triptych({"run", model, "--prompt", "x", "--weights", "int7"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("int7"));
  const RunResult later = triptych({"run", model, "--prompt", "x", "--weights", "fp8"});
  EXPECT_EQ(later.exit_code, 2);
  EXPECT_THAT(later.err, HasSubstr("\"fp8\" cannot be computed with; expected int8, int4 or nf4"));
  expect_bad_input(triptych({"run", model, "--prompt", "x", "--weights", "int4:g48"}), ":g32, :g64, :g128");
  expect_bad_input(triptych({"run", model, "--prompt", "x", "--weights", "int4:g32:g64"}), "given twice");
  expect_bad_input(triptych({"run", model, "--prompt", "x", "--weights", "int4:sym:asym"}), "given twice");
}

TEST(Program, VersionAndHelp) {
  const RunResult version = triptych({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::StartsWith("triptych "));
  EXPECT_THAT(triptych({"--version"}, "", {"TRIPTYCH_ISA=scalar"}).out, HasSubstr("instruction set scalar"));
  const RunResult help = triptych({"run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(help.out, HasSubstr("--temperature"));
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
  EXPECT_THAT(triptych({"--help"}).out, HasSubstr("verify"));
  EXPECT_THAT(triptych({"--help-man"}).out, testing::StartsWith(".TH TRIPTYCH 1"));
}

TEST(Program, BashCompletes) {
  const auto complete = [](const std::vector<std::string>& words) {
    std::string script = "source <(\"$0\" completion bash); COMP_WORDS=(";
    for (const std::string& word : words) script += " '" + word + "'";
    script += "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _triptych; printf '%s\\n' \"${COMPREPLY[@]}\"";
    return run_program({"bash", "-c", script, program_path()}).out;
  };
  EXPECT_EQ(complete({"triptych", "ver"}), "verify\n");
  EXPECT_THAT(complete({"triptych", "run", "--te"}), testing::StrEq("--temperature\n"));
  EXPECT_EQ(complete({"triptych", "run", "m", "--kv-cache-dtype", "b"}), "bf16\n");
  EXPECT_EQ(complete({"triptych", "run", "m", "--weights", "int"}), "int8\nint4\n");
  EXPECT_THAT(complete({"triptych", "run", (kSource / "ass").string()}), HasSubstr("assets"));
}

}  // namespace
}  // namespace triptych::test
