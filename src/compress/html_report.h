// The report of a compression as one HTML file: what became smaller, what each linear lost before and after
// the passes, and what that did to answers. No script, no other file; light and dark, and on paper.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compress/compress.h"
#include "compress/gate.h"

namespace triptych::compress {

struct HtmlReportInput {
  std::string model, out, data, eval;
  const CompressReport& report;
  const QualityLoss* loss = nullptr;  // null: nothing was evaluated
  std::vector<GateResult> gate = {};
};

std::string html_report(const HtmlReportInput& input);

}  // namespace triptych::compress
