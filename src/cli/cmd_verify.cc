// triptych verify: does a model give what the reference implementation gives?
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/text_table.h"
#include "cli/verify.h"

namespace triptych::cli {
namespace {

struct VerifyFlags {
  ModelFlags model;
  MediaFlags media;
  std::string golden;
  std::string kv_cache_dtype = "auto";
  std::optional<double> tolerance;
  bool summary = false;
  bool json = false;
};

// Weights rounded to 16 bits move every value by up to 2^-9 (bf16) or 2^-11 (fp16) of itself; layers add up.
// These are starting points for looking at such a model; --tolerance sets another.
double default_tolerance(const VerifyFlags& flags) {
  const std::optional<DType> dtype = parse_dtype(flags.model.dtype);
  if (dtype == DType::kBF16) return 5e-2;
  return dtype == DType::kF16 ? 1e-2 : 1e-4;
}

std::string verdict(bool passed) { return passed ? "pass" : "FAIL"; }

void add_difference(TextTable& table, const std::string& name, const Difference& d, double tolerance) {
  if (!d.problem.empty()) {
    table.add_row({name, "", "", "FAIL: " + d.problem});
  } else {
    table.add_row(
        {name, format_error(d.max_abs), format_error(d.relative()), d.within(tolerance) ? "" : "FAIL"});
  }
}

std::string greedy_text(const GreedyReport& greedy) {
  std::string out = fmt::format("{} of {} tokens equal", greedy.n_equal, greedy.n_steps);
  if (greedy.first_different >= 0)
    out += fmt::format("; first different at step {}: margin {} against an error of {}",
                       greedy.first_different, format_error(greedy.margin), format_error(greedy.error));
  return out;
}

void print_case(const CaseReport& report, double tolerance, bool summary) {
  if (summary) {
    std::fflush(stdout);
    return;
  }
  std::string out = fmt::format("case {}: {} tokens, {} picture{}\n", report.name, report.n_tokens,
                                report.n_media, report.n_media == 1 ? "" : "s");
  if (!report.error.empty()) {
    out += "  FAIL: " + one_line(report.error) + "\n\n";
    std::fputs(out.c_str(), stdout);
    return;
  }
  TextTable table({{"value", Align::kLeft}, {"max abs"}, {"relative"}, {"", Align::kLeft}});
  const auto add_text = [&](const char* name, const std::string& problem) {
    table.add_row({name, problem.empty() ? "equal" : "", problem.empty() ? "equal" : "",
                   problem.empty() ? "" : "FAIL: " + one_line(problem)});
  };
  add_text("prompt", report.prompt_problem);
  add_text("input_ids", report.ids_problem);
  for (const NamedDifference& input : report.inputs)
    add_difference(table, input.name, input.difference,
                   report.within_grey_level ? std::max(tolerance, input.difference.relative()) : tolerance);
  for (const NamedDifference& tap : report.taps) add_difference(table, tap.name, tap.difference, tolerance);
  for (const std::string& name : report.missing_taps) table.add_row({name, "", "", "FAIL: not produced"});
  if (report.logits) add_difference(table, "logits", *report.logits, tolerance);
  if (report.step_logits) add_difference(table, "step_logits", *report.step_logits, tolerance);
  out += table.render(2);
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

const NamedDifference* worst(const std::vector<NamedDifference>& list) {
  const NamedDifference* out = nullptr;
  for (const NamedDifference& one : list)
    if (out == nullptr || !one.difference.problem.empty() ||
        (out->difference.problem.empty() && one.difference.relative() > out->difference.relative()))
      out = &one;
  return out;
}

std::string relative_text(const std::optional<Difference>& d) {
  return !d ? "-" : d->problem.empty() ? format_error(d->relative()) : "?";
}

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
    const NamedDifference* pixels = worst(r.inputs);
    const NamedDifference* tap = worst(r.taps);
    const auto text = [](const NamedDifference* d) {
      return relative_text(d == nullptr ? std::nullopt : std::optional(d->difference));
    };
    table.add_row({r.name, std::to_string(r.n_tokens),
                   r.prompt_problem.empty() && r.ids_problem.empty() ? "equal" : "differ",
                   r.within_grey_level ? "1 grey level" : text(pixels),
                   fmt::format("{}/{}", r.taps.size(), r.taps.size() + r.missing_taps.size()), text(tap),
                   relative_text(r.logits), relative_text(r.step_logits),
                   fmt::format("{}/{}", r.greedy.n_equal, r.greedy.n_steps), verdict(r.passed)});
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

JsonOut case_json(const CaseReport& r, double tolerance) {
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
  out["inputs"] = list_json(r.inputs, tolerance);
  out["pixels_within_grey_level"] = r.within_grey_level;
  out["limits_from_grid"] = r.limits_from_grid;
  out["taps"] = list_json(r.taps, tolerance);
  out["missing_taps"] = r.missing_taps;
  out["first_diverging_tap"] = r.first_diverging_tap.empty() ? JsonOut() : JsonOut(r.first_diverging_tap);
  if (r.logits) out["logits"] = difference_json(*r.logits, tolerance);
  if (r.step_logits) out["step_logits"] = difference_json(*r.step_logits, tolerance);
  out["greedy"] = {
      {"steps", r.greedy.n_steps},
      {"equal", r.greedy.n_equal},
      {"first_different", r.greedy.first_different < 0 ? JsonOut() : JsonOut(r.greedy.first_different)},
      {"passed", r.greedy.passed}};
  if (!r.answer_problem.empty()) out["answer_problem"] = r.answer_problem;
  return out;
}

int verify(const VerifyFlags& flags) {
  const double tolerance = flags.tolerance.value_or(default_tolerance(flags));
  const GoldenSet golden =
      read_golden(flags.golden.empty() ? find_golden(flags.model.model) : find_golden(flags.golden));
  const auto model = flags.model.open();
  const VerifyOptions options{.tolerance = tolerance,
                              .kv_cache_dtype = parse_dtype(flags.kv_cache_dtype).value_or(DType::kF32),
                              .media = flags.media.options};
  const auto reports =
      verify_model(*model, golden, options, [&](const CaseReport& report, std::size_t, std::size_t) {
        if (!flags.json) print_case(report, tolerance, flags.summary);
      });
  std::size_t n_passed = 0;
  for (const CaseReport& report : reports) n_passed += report.passed ? 1 : 0;
  const bool passed = n_passed == reports.size();
  if (flags.json) {
    JsonOut out = {{"model", flags.model.model},    {"family", model->info().family},
                   {"reference", golden.reference}, {"backend", model->backend().describe()},
                   {"tolerance", tolerance},        {"passed", passed}};
    out["cases"] = JsonOut::array();
    for (const CaseReport& report : reports) out["cases"].push_back(case_json(report, tolerance));
    print_json(out);
  } else {
    std::fputs(summary_table(reports).c_str(), stdout);
    std::printf("\n%s: %zu of %zu cases pass (tolerance %s of the largest value; reference: %s; %s)\n",
                verdict(passed).c_str(), n_passed, reports.size(), format_error(tolerance).c_str(),
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
  app.add_option("--tolerance", flags->tolerance,
                 "Largest error allowed, relative to the largest magnitude (default 1e-4; 1e-2 with --dtype "
                 "fp16, 5e-2 with bf16)")
      ->type_name("X");
  app.add_option("--kv-cache-dtype", flags->kv_cache_dtype,
                 "Keep keys and values as fp32 (auto), fp16 or bf16")
      ->check(CLI::IsMember({"auto", "fp32", "fp16", "bf16"}))
      ->type_name("TYPE");
  flags->media.add_to(app);
  app.add_flag("--summary", flags->summary, "Only one line per case");
  app.add_flag("--json", flags->json, "Print one JSON object instead of tables");
  app.footer(
      "A case compares the rendered prompt, token ids, pixels, every tap the reference recorded, the logits, "
      "and the\n"
      "greedy tokens. tools/make_golden.py makes the reference values of a checkpoint. Exit code 1: "
      "something differs.\n\n"
      "Examples:\n"
      "  triptych verify assets/models/scenes-llava\n"
      "  triptych verify MODEL --golden my-golden --summary\n"
      "  triptych verify MODEL --json | jq '.cases[] | {name, passed, first_diverging_tap}'");
  app.callback([flags, &action] { action = [flags] { return verify(*flags); }; });
}

}  // namespace triptych::cli
