// What a compression does, as a file: formats, a budget, the calibration, and the passes in their order.
//
//   recipe: balanced
//   formats: {language: int4:g128, vision: int8, lm_head: int8}   # auto: as they are stored
//   budget: {bits: 4.5, choices: [int4:g128, int8], samples: 64}  # or bytes: 4.4GB, or max_loss: 0.3; may be
//   missing calibration: {samples: 128, image_token_weight: 0.1, answer_tokens: 64} passes:
//     - equalize
//     - round: {feedback: 1, clip_to: 0.7, damping: 0.01}
//
// Keys that are missing have the values of `balanced`; keys that are not known are refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compress/calibration_data.h"
#include "compress/pass.h"
#include "weights/quant_policy.h"

namespace triptych::compress {

struct PassStep {
  std::string name;
  PassSettings settings;  // all that the pass has
};

/// One of these bounds at most is set (not 0).
struct RecipeBudget {
  double bits = 0;      // a weight, scales included, on average over all linears
  double bytes = 0;     // of all weights in OUT
  double max_loss = 0;  // points of exact match on the calibration's answers
  std::vector<QuantFormat> choices;
  std::size_t n_samples = 64;  // conversations that costs are measured on

  bool any() const noexcept { return bits > 0 || bytes > 0 || max_loss > 0; }
};

struct Recipe {
  std::string name;
  WeightFormats formats;
  RecipeBudget budget;
  CalibrationOptions calibration;
  std::vector<PassStep> passes;

  /// The settings of a pass; null: it is none of the recipe's.
  PassSettings* settings_of(std::string_view pass);
};

/// `source` goes into errors. Throws Error(kInvalidFile) naming the key, what was expected and what was
/// found.
Recipe parse_recipe(std::string_view yaml, std::string_view source);
/// What parse_recipe reads as the same recipe.
std::string to_yaml(const Recipe& recipe);

/// "balanced", "smallest", "fastest".
const std::vector<std::string>& shipped_recipe_names();
/// Throws Error(kNotFound) that lists them.
Recipe shipped_recipe(std::string_view name);
/// A shipped one by its name, else a file. Throws Error.
Recipe read_recipe(const std::string& name_or_file);

/// "4.4GB", "500MB", "2GiB", "123456": a number of bytes. Throws Error(kInvalidArgument) naming `what`.
double parse_bytes(std::string_view text, std::string_view what);

std::vector<std::unique_ptr<Pass>> make_passes(const Recipe& recipe);

}  // namespace triptych::compress
