// triptych verify: does a model give what the reference implementation gives?
#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "engine/packed_directory.h"
#include "evaluation/verify_report.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

struct VerifyFlags {
  ModelFlags model;
  MediaFlags media;
  std::string golden;
  std::string kv_cache_dtype = "auto";
  std::optional<double> tolerance;
  bool no_baseline = false;
  bool summary = false;
  bool json = false;
};

constexpr double kFp32Tolerance = 1e-4;
constexpr double kInt8Tolerance = 0.2;
constexpr double kInt4Tolerance = 1.0;

// What a run rounds to, and how far from the reference that may lead. Rounding to 16 bits moves every value
// by up to 2^-9 (bf16) or 2^-12 (fp16) of itself; 8-bit products err by about a hundredth of a row's size,
// 4-bit weights by a tenth. Layers add up. The bounds are at least twice what the random models of all
// families show (docs/models.md).
struct Precision {
  std::string word;
  double tolerance;
};

// The coarsest of what weights, keys and values are rounded to by flag; fp32 when nothing is.
Precision coarsest_precision(const VerifyFlags& flags, const WeightFormats& formats,
                             const std::string& weights) {
  for (const auto* part : {&formats.language, &formats.vision, &formats.lm_head})
    if (*part && (*part)->bits() == 4) return {"int4", kInt4Tolerance};
  const KvDType kv = parse_kv_dtype(flags.kv_cache_dtype).value_or(KvDType::kF32);
  if (kv == KvDType::kInt4) return {"int4", kInt4Tolerance};
  if (formats.any() || is_quantized(kv)) return {"int8", kInt8Tolerance};
  DType out = parse_dtype(weights).value_or(DType::kF32);
  if (kv == KvDType::kBF16) out = DType::kBF16;
  if (kv == KvDType::kF16 && out == DType::kF32) out = DType::kF16;
  return {dtype_word(out), out == DType::kBF16 ? 5e-2 : out == DType::kF16 ? 1e-2 : kFp32Tolerance};
}

VerifyBaseline run_in_fp32(const VerifyFlags& flags, const GoldenSet& golden, const std::string& dtype) {
  ModelFlags in_fp32 = flags.model;
  in_fp32.dtype = "fp32";
  in_fp32.vision_weights = in_fp32.lm_head = "";
  const auto model = in_fp32.open();  // given back before the other one is loaded
  return {dtype,
          verify_model(*model, golden, {.tolerance = kFp32Tolerance, .media = flags.media.inner_options()})};
}

// What a converted directory stores, without its weights.
std::optional<PackedConfig> packed_config(const VerifyFlags& flags) {
  CheckpointOptions options;
  options.load_weights = false;
  const Checkpoint checkpoint = Checkpoint::open(flags.model.model, options);
  if (!is_packed_directory(checkpoint.config())) return std::nullopt;
  return PackedConfig::parse(checkpoint.config_view().at("quantization_config"));
}

int verify(const VerifyFlags& flags) {
  const std::optional<PackedConfig> packed = packed_config(flags);
  const Precision precision =
      packed ? coarsest_precision(flags, packed->formats, packed->dtype ? dtype_word(*packed->dtype) : "auto")
             : coarsest_precision(flags, flags.model.load_options().weight_formats, flags.model.dtype);
  const VerifyTolerances tolerance{.values = flags.tolerance.value_or(precision.tolerance),
                                   .pixels = flags.tolerance.value_or(kFp32Tolerance)};
  const GoldenSet golden =
      read_golden(flags.golden.empty() ? find_golden(flags.model.model) : find_golden(flags.golden));
  std::optional<VerifyBaseline> fp32;
  if (precision.word != "fp32" && !flags.no_baseline && !packed)
    fp32 = run_in_fp32(flags, golden, precision.word);
  flags.media.check_values();
  const auto model = flags.model.open();
  flags.media.check(model->info().architecture, model->info().takes_pixel_limits);
  const VerifyOptions options{
      .tolerance = tolerance.values,
      .pixel_tolerance = tolerance.pixels,
      .kv_cache_dtype = parse_kv_dtype(flags.kv_cache_dtype).value_or(KvDType::kF32),
      .errors_a_margin = precision.word == "int4" || precision.word == "int8" ? 2.0 : 1.0,
      .media = flags.media.inner_options()};
  const auto reports =
      verify_model(*model, golden, options, [&](const CaseReport& report, std::size_t, std::size_t) {
        if (flags.json || flags.summary) return;
        std::fputs(case_text(report, fp32 ? fp32->find(report.name) : nullptr, tolerance).c_str(), stdout);
        std::fflush(stdout);
      });
  std::size_t n_passed = 0;
  for (const CaseReport& report : reports) n_passed += report.passed ? 1 : 0;
  const bool passed = n_passed == reports.size();
  if (flags.json) {
    JsonOut out = json_document("verify", {{"model", flags.model.model},
                                           {"family", model->info().family},
                                           {"reference", golden.reference},
                                           {"backend", model->backend().describe()},
                                           {"dtype", flags.model.dtype},
                                           {"vision_weights", flags.model.vision_weights},
                                           {"lm_head", flags.model.lm_head},
                                           {"kv_cache_dtype", flags.kv_cache_dtype},
                                           {"tolerance", tolerance.values},
                                           {"passed", passed}});
    out["cases"] = JsonOut::array();
    for (const CaseReport& report : reports) {
      out["cases"].push_back(case_json(report, tolerance));
      if (fp32)
        if (const CaseReport* beside = fp32->find(report.name))
          out["cases"].back()["in_fp32"] = case_json(*beside, {kFp32Tolerance, kFp32Tolerance});
    }
    print_json(out);
  } else {
    std::fputs((fp32 ? comparison_table(reports, *fp32) : summary_table(reports)).c_str(), stdout);
    std::printf("\n%s: %zu of %zu cases pass (tolerance %s of the largest value; reference: %s; %s)\n",
                verdict(passed).c_str(), n_passed, reports.size(), format_error(tolerance.values).c_str(),
                one_line(golden.reference).c_str(), model->backend().describe().c_str());
  }
  return passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_verify_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App& app =
      *program.add_subcommand("verify", "Compare every intermediate value with a reference implementation");
  flags->model.add_to(app);
  app.add_option("--golden", flags->golden, "Directory with golden.json")
      ->type_name("DIR")
      ->default_str("the model's own, or its folder golden");
  app.add_option("--tolerance", flags->tolerance, "Largest error allowed, relative to the largest magnitude")
      ->check(is_within(0, 1e6))
      ->type_name("X")
      ->default_str("1e-4; 1e-2 with --weights fp16, 5e-2 with bf16, 0.2 with int8, 1 with int4");
  add_kv_cache_dtype(app, flags->kv_cache_dtype, KvDType::kF32);
  flags->media.add_to(app);
  app.add_flag("--no-baseline", flags->no_baseline,
               "In 16 bits: do not run float32 first, to show its errors beside");
  app.add_flag("--summary", flags->summary, "Only one line per case");
  add_json_flag(app, flags->json, "Print one JSON object instead of tables");
  show_first(app, {"golden", "weights", "tolerance", "summary", "json"});
  app.footer(
      "A case compares the rendered prompt, token ids, pixels, every tap the reference recorded, the logits, "
      "and the\n"
      "greedy tokens. tools/make_golden.py makes the reference values of a checkpoint. Exit code 1: "
      "something differs.\n"
      "With --dtype or --kv-cache-dtype fp16 or bf16 the errors stand beside those of float32. A greedy "
      "token "
      "must be the\n"
      "reference's where its margin (best minus second best logit) exceeds the largest error of that step's "
      "logits.\n\n"
      "Examples:\n"
      "  triptych verify assets/models/scenes-llava\n"
      "  triptych verify MODEL --golden my-golden --summary\n"
      "  triptych verify MODEL --dtype bf16 --summary\n"
      "  triptych verify MODEL --json | jq '.cases[] | {name, passed, first_diverging_tap}'");
  app.callback([flags, &action] { action = [flags] { return verify(*flags); }; });
}

}  // namespace triptych::cli
