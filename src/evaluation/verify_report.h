// What verify_model found, as tables for people and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evaluation/verify.h"
#include "report/json_text.h"

namespace triptych {

/// The same cases in float32, run before a run that rounds to less.
struct VerifyBaseline {
  std::string dtype;  // of the run beside it: "bf16", "fp16", "int8" or "int4"
  std::vector<CaseReport> reports;

  /// Null: no case has this name, or the model threw on it.
  const CaseReport* find(std::string_view name) const;
};

/// Largest errors that pass, relative to the largest magnitude (see VerifyOptions).
struct VerifyTolerances {
  double values, pixels;
};

/// "pass" or "FAIL".
std::string verdict(bool passed);

/// One row for every value of a case; `fp32` (may be null) adds a column with the errors of that run.
std::string case_text(const CaseReport& report, const CaseReport* fp32, const VerifyTolerances& tolerance);
/// One row a case.
std::string summary_table(const std::vector<CaseReport>& reports);
/// The same beside the run in float32. "beyond error" counts the steps whose margin exceeds the error.
std::string comparison_table(const std::vector<CaseReport>& reports, const VerifyBaseline& fp32);

JsonOut case_json(const CaseReport& report, const VerifyTolerances& tolerance);

}  // namespace triptych
