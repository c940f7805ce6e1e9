#include "evaluation/verify_report.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "report/text_table.h"

namespace triptych {
namespace {

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

std::string share(std::int64_t n, std::int64_t of) { return fmt::format("{}/{}", n, of); }

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

}  // namespace

const CaseReport* VerifyBaseline::find(std::string_view name) const {
  for (const CaseReport& one : reports)
    if (one.name == name && one.error.empty()) return &one;
  return nullptr;
}

std::string verdict(bool passed) { return passed ? "pass" : "FAIL"; }

std::string case_text(const CaseReport& report, const CaseReport* fp32, const VerifyTolerances& tolerance) {
  std::string out = fmt::format("case {}: {} tokens, {} picture{}\n", report.name, report.n_tokens,
                                report.n_media, report.n_media == 1 ? "" : "s");
  if (!report.error.empty()) {
    return out + "  FAIL: " + one_line(report.error) + "\n\n";
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
  return out + "  " + verdict(report.passed) + "\n\n";
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
                   {"verdict", Align::kLeft}});
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

std::string comparison_table(const std::vector<CaseReport>& reports, const VerifyBaseline& fp32) {
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
                   {"verdict", Align::kLeft}});
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

JsonOut case_json(const CaseReport& r, const VerifyTolerances& tolerance) {
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

}  // namespace triptych
