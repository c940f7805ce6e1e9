// triptych verify: does a model give what the reference implementation gives?
#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/text_table.h"
#include "cli/verify.h"
#include "engine/packed_directory.h"

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

// The same cases in float32, run before, when the run is one in 16 bits.
struct Baseline {
  std::string dtype;  // "bf16", "fp16" or "int8": of the run beside it
  std::vector<CaseReport> reports;

  const CaseReport* find(std::string_view name) const {
    for (const CaseReport& one : reports)
      if (one.name == name && one.error.empty()) return &one;
    return nullptr;
  }
};

struct Tolerances {
  double values, pixels;
};

std::string verdict(bool passed) { return passed ? "pass" : "FAIL"; }

std::string relative_text(const std::optional<Difference>& d) {
  return !d ? "-" : d->problem.empty() ? format_error(d->relative()) : "?";
}

std::string worst_text(const std::vector<NamedDifference>& list) {
  const NamedDifference* d = worst(list);
  return relative_text(d == nullptr ? std::nullopt : std::optional(d->difference));
}

// Rows of one case: the errors of this run and, beside them, those of the run in float32.
class CaseTable {
 public:
  explicit CaseTable(const CaseReport* fp32) : fp32_(fp32), table_(columns(fp32 != nullptr)) {}

  void add_text(const std::string& name, const std::string& problem) {
    const std::string word = problem.empty() ? "equal" : "";
    add(name, word, word, "", problem.empty() ? "" : "FAIL: " + one_line(problem));
  }
  void add_difference(const std::string& name, const Difference& d, double tolerance,
                      const std::optional<Difference>& fp32) {
    if (!d.problem.empty()) return add(name, "", "", "", "FAIL: " + d.problem);
    add(name, format_error(d.max_abs), format_error(d.relative()), relative_text(fp32),
        d.within(tolerance) ? "" : "FAIL");
  }
  void add_list(const std::vector<NamedDifference>& list, double tolerance, bool within_grey_level,
                const std::vector<NamedDifference> CaseReport::*member) {
    for (const NamedDifference& one : list) {
      std::optional<Difference> beside;
      if (fp32_ != nullptr)
        for (const NamedDifference& other : fp32_->*member)
          if (other.name == one.name) beside = other.difference;
      const double limit = within_grey_level ? std::max(tolerance, one.difference.relative()) : tolerance;
      add_difference(one.name, one.difference, limit, beside);
    }
  }
  void add(const std::string& name, const std::string& max_abs, const std::string& relative,
           const std::string& fp32, const std::string& verdict) {
    if (fp32_ != nullptr) {
      table_.add_row({name, max_abs, relative, fp32, verdict});
    } else {
      table_.add_row({name, max_abs, relative, verdict});
    }
  }
  std::string render() const { return table_.render(2); }

 private:
  static std::vector<TextTable::Column> columns(bool with_fp32) {
    std::vector<TextTable::Column> out{{"value", Align::kLeft}, {"max abs"}, {"relative"}};
    if (with_fp32) out.push_back({"in fp32"});
    out.push_back({"", Align::kLeft});
    return out;
  }
  const CaseReport* fp32_;
  TextTable table_;
};

std::string greedy_text(const GreedyReport& greedy) {
  std::string out = fmt::format("{} of {} tokens equal, {} of the {} whose margin exceeds the error",
                                greedy.n_equal, greedy.n_steps, greedy.n_decided_equal, greedy.n_decided);
  if (greedy.first_different >= 0)
    out += fmt::format("; first different at step {}: margin {} against an error of {}",
                       greedy.first_different, format_error(greedy.margin), format_error(greedy.error));
  return out;
}

void print_case(const CaseReport& report, const CaseReport* fp32, const Tolerances& tolerance) {
  std::string out = fmt::format("case {}: {} tokens, {} picture{}\n", report.name, report.n_tokens,
                                report.n_media, report.n_media == 1 ? "" : "s");
  if (!report.error.empty()) {
    out += "  FAIL: " + one_line(report.error) + "\n\n";
    std::fputs(out.c_str(), stdout);
    return;
  }
  CaseTable table(fp32);
  table.add_text("prompt", report.prompt_problem);
  table.add_text("input_ids", report.ids_problem);
  table.add_list(report.inputs, tolerance.pixels, report.within_grey_level, &CaseReport::inputs);
  table.add_list(report.taps, tolerance.values, false, &CaseReport::taps);
  for (const std::string& name : report.missing_taps) table.add(name, "", "", "", "FAIL: not produced");
  const auto beside = [&](const std::optional<Difference> CaseReport::*member) {
    return fp32 == nullptr ? std::nullopt : fp32->*member;
  };
  if (report.logits)
    table.add_difference("logits", *report.logits, tolerance.values, beside(&CaseReport::logits));
  if (report.step_logits)
    table.add_difference("step_logits", *report.step_logits, tolerance.values,
                         beside(&CaseReport::step_logits));
  out += table.render();
  if (report.limits_from_grid)
    out += "  pixel limits: those that the recorded grid implies, not the directory's\n";
  if (report.within_grey_level)
    out += "  pixels: within one grey level; taps, logits and steps are those of the reference's pixels\n";
  if (!report.first_diverging_tap.empty())
    out += "  first diverging tap: " + report.first_diverging_tap + "\n";
  out += "  greedy: " + greedy_text(report.greedy) + (report.greedy.passed ? "" : " FAIL") + "\n";
  if (!report.answer_problem.empty()) out += "  answer: FAIL: " + one_line(report.answer_problem) + "\n";
  out += "  " + verdict(report.passed) + "\n\n";
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

std::string share(std::int64_t n, std::int64_t of) { return fmt::format("{}/{}", n, of); }

std::string summary_table(const std::vector<CaseReport>& reports) {
  TextTable table({{"case", Align::kLeft},
                   {"tokens"},
                   {"ids", Align::kLeft},
                   {"pixels"},
                   {"taps"},
                   {"worst tap"},
                   {"logits"},
                   {"steps"},
                   {"greedy"},
                   {"", Align::kLeft}});
  for (const CaseReport& r : reports) {
    if (!r.error.empty()) {
      table.add_row({r.name, "", "", "", "", "", "", "", "", "FAIL: " + one_line(r.error)});
      continue;
    }
    const auto n_taps = static_cast<std::int64_t>(r.taps.size());
    table.add_row({r.name, std::to_string(r.n_tokens),
                   r.prompt_problem.empty() && r.ids_problem.empty() ? "equal" : "differ",
                   r.within_grey_level ? "1 grey level" : worst_text(r.inputs),
                   share(n_taps, n_taps + static_cast<std::int64_t>(r.missing_taps.size())),
                   worst_text(r.taps), relative_text(r.logits), relative_text(r.step_logits),
                   share(r.greedy.n_equal, r.greedy.n_steps), verdict(r.passed)});
  }
  return table.render();
}

// Both runs beside one another. "margin" counts the steps whose margin exceeds the error of the 16-bit run.
std::string comparison_table(const std::vector<CaseReport>& reports, const Baseline& fp32) {
  const auto of = [&](const char* what) {
    return std::pair<TextTable::Column, TextTable::Column>{{fmt::format("{} fp32", what)}, {fp32.dtype}};
  };
  const auto [tap32, tap16] = of("worst tap");
  const auto [logits32, logits16] = of("logits");
  const auto [steps32, steps16] = of("steps");
  TextTable table({{"case", Align::kLeft},
                   tap32,
                   tap16,
                   logits32,
                   logits16,
                   steps32,
                   steps16,
                   {"greedy fp32"},
                   {fp32.dtype},
                   {"beyond error"},
                   {"", Align::kLeft}});
  for (const CaseReport& r : reports) {
    if (!r.error.empty()) {
      table.add_row({r.name, "", "", "", "", "", "", "", "", "", "FAIL: " + one_line(r.error)});
      continue;
    }
    const CaseReport none;
    const CaseReport* found = fp32.find(r.name);
    const CaseReport& b = found == nullptr ? none : *found;
    table.add_row({r.name, worst_text(b.taps), worst_text(r.taps), relative_text(b.logits),
                   relative_text(r.logits), relative_text(b.step_logits), relative_text(r.step_logits),
                   share(b.greedy.n_equal, b.greedy.n_steps), share(r.greedy.n_equal, r.greedy.n_steps),
                   share(r.greedy.n_decided_equal, r.greedy.n_decided), verdict(r.passed)});
  }
  return table.render();
}

JsonOut difference_json(const Difference& d, double tolerance) {
  JsonOut out = {{"max_abs", d.max_abs},
                 {"relative", d.relative()},
                 {"largest", d.largest},
                 {"passed", d.within(tolerance)}};
  if (!d.problem.empty()) out["problem"] = d.problem;
  return out;
}

JsonOut list_json(const std::vector<NamedDifference>& list, double tolerance) {
  JsonOut out = JsonOut::object();
  for (const NamedDifference& one : list) out[one.name] = difference_json(one.difference, tolerance);
  return out;
}

JsonOut greedy_json(const GreedyReport& g) {
  JsonOut out = {{"steps", g.n_steps},
                 {"equal", g.n_equal},
                 {"margin_exceeds_error", g.n_decided},
                 {"equal_where_margin_exceeds_error", g.n_decided_equal},
                 {"first_different", g.first_different < 0 ? JsonOut() : JsonOut(g.first_different)},
                 {"passed", g.passed}};
  if (g.first_different >= 0) {
    out["margin"] = g.margin;
    out["error"] = g.error;
  }
  return out;
}

JsonOut case_json(const CaseReport& r, const Tolerances& tolerance) {
  JsonOut out = {{"name", r.name}, {"passed", r.passed}};
  if (!r.error.empty()) {
    out["error"] = r.error;
    return out;
  }
  out["n_tokens"] = r.n_tokens;
  out["prompt_equal"] = r.prompt_problem.empty();
  out["ids_equal"] = r.ids_problem.empty();
  if (!r.prompt_problem.empty()) out["prompt_problem"] = r.prompt_problem;
  if (!r.ids_problem.empty()) out["ids_problem"] = r.ids_problem;
  out["inputs"] = list_json(r.inputs, tolerance.pixels);
  out["pixels_within_grey_level"] = r.within_grey_level;
  out["limits_from_grid"] = r.limits_from_grid;
  out["taps"] = list_json(r.taps, tolerance.values);
  out["missing_taps"] = r.missing_taps;
  out["first_diverging_tap"] = r.first_diverging_tap.empty() ? JsonOut() : JsonOut(r.first_diverging_tap);
  if (r.logits) out["logits"] = difference_json(*r.logits, tolerance.values);
  if (r.step_logits) out["step_logits"] = difference_json(*r.step_logits, tolerance.values);
  out["greedy"] = greedy_json(r.greedy);
  if (!r.answer_problem.empty()) out["answer_problem"] = r.answer_problem;
  return out;
}

Baseline run_in_fp32(const VerifyFlags& flags, const GoldenSet& golden, const std::string& dtype) {
  ModelFlags in_fp32 = flags.model;
  in_fp32.dtype = "fp32";
  in_fp32.vision_weights = in_fp32.lm_head = "";
  const auto model = in_fp32.open();  // given back before the other one is loaded
  return {dtype, verify_model(*model, golden, {.tolerance = kFp32Tolerance, .media = flags.media.options})};
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
  const Tolerances tolerance{.values = flags.tolerance.value_or(precision.tolerance),
                             .pixels = flags.tolerance.value_or(kFp32Tolerance)};
  const GoldenSet golden =
      read_golden(flags.golden.empty() ? find_golden(flags.model.model) : find_golden(flags.golden));
  std::optional<Baseline> fp32;
  if (precision.word != "fp32" && !flags.no_baseline && !packed)
    fp32 = run_in_fp32(flags, golden, precision.word);
  const auto model = flags.model.open();
  flags.media.check(model->info());
  const VerifyOptions options{
      .tolerance = tolerance.values,
      .pixel_tolerance = tolerance.pixels,
      .kv_cache_dtype = parse_kv_dtype(flags.kv_cache_dtype).value_or(KvDType::kF32),
      .errors_a_margin = precision.word == "int4" || precision.word == "int8" ? 2.0 : 1.0,
      .media = flags.media.options};
  const auto reports =
      verify_model(*model, golden, options, [&](const CaseReport& report, std::size_t, std::size_t) {
        if (!flags.json && !flags.summary)
          print_case(report, fp32 ? fp32->find(report.name) : nullptr, tolerance);
      });
  std::size_t n_passed = 0;
  for (const CaseReport& report : reports) n_passed += report.passed ? 1 : 0;
  const bool passed = n_passed == reports.size();
  if (flags.json) {
    JsonOut out = {{"model", flags.model.model},     {"family", model->info().family},
                   {"reference", golden.reference},  {"backend", model->backend().describe()},
                   {"dtype", flags.model.dtype},     {"vision_weights", flags.model.vision_weights},
                   {"lm_head", flags.model.lm_head}, {"kv_cache_dtype", flags.kv_cache_dtype},
                   {"tolerance", tolerance.values},  {"passed", passed}};
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
  app.add_option("--golden", flags->golden,
                 "Directory with golden.json (default: the model's own, or its folder golden)")
      ->type_name("DIR");
  app.add_option(
         "--tolerance", flags->tolerance,
         "Largest error allowed, relative to the largest magnitude (default 1e-4; 1e-2 with --weights "
         "fp16, 5e-2 with bf16, 0.2 with int8, 1 with int4)")
      ->check(is_within(0, 1e6))
      ->type_name("X");
  add_kv_cache_dtype(app, flags->kv_cache_dtype, KvDType::kF32);
  flags->media.add_to(app);
  app.add_flag("--no-baseline", flags->no_baseline,
               "In 16 bits: do not run float32 first, to show its errors beside");
  app.add_flag("--summary", flags->summary, "Only one line per case");
  app.add_flag("--json", flags->json, "Print one JSON object instead of tables");
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
