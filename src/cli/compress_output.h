// What `triptych compress` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compress/compress.h"
#include "compress/dry_run.h"
#include "compress/gate.h"

namespace triptych::cli {

struct CompressOutcome {
  std::string model, out, data, eval;
  compress::CompressReport report = {};
  std::optional<compress::QualityLoss> loss = {};
  std::vector<compress::GateResult> gate = {};
};

void print_compress_text(const CompressOutcome& outcome);
void print_compress_json(const CompressOutcome& outcome);
void print_plan_text(const compress::CompressPlan& plan, const compress::Recipe& recipe);
void print_plan_json(const std::string& model, const compress::CompressPlan& plan,
                     const compress::Recipe& recipe);

}  // namespace triptych::cli
