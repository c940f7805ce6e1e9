// Parity with a reference: runs the cases of a golden set through a model and says how far each value is off
// and where the two first part. It knows no family: names and shapes in the golden files decide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/load.h"
#include "evaluation/golden.h"
#include "evaluation/tensor_compare.h"

namespace triptych {

struct NamedDifference {
  std::string name;
  Difference difference;
};

struct GreedyReport {
  std::int64_t n_steps = 0;
  std::int64_t n_equal = 0;
  // Steps whose golden margin (best minus second best logit) exceeds the largest error in that step's logits:
  // there the token must be the reference's. At the others the two best tokens may change places.
  std::int64_t n_decided = 0;
  std::int64_t n_decided_equal = 0;
  // The first step whose best token differs, its margin and its error.
  std::int64_t first_different = -1;
  double margin = 0;
  double error = 0;
  bool passed = true;  // all decided steps are equal
};

struct CaseReport {
  std::string name;
  std::int64_t n_tokens = 0;
  std::int64_t n_media = 0;
  std::string error;  // what the engine threw; then nothing below is filled in

  std::string prompt_problem;  // empty: equal
  std::string ids_problem;     // of input_ids and of other id or size inputs
  std::vector<NamedDifference> inputs;
  // Pixels differ, but nowhere by more than one grey level (another resampling code): the taps, logits and
  // steps are then those of the reference's pixels, so that they still compare the model, and the answer is
  // that of our own.
  bool within_grey_level = false;
  // The recorded grid was made with other pixel limits than the directory's; those it implies were used.
  bool limits_from_grid = false;
  std::vector<NamedDifference> taps;      // in the order of execution
  std::vector<std::string> missing_taps;  // in the golden file, not in this model
  std::vector<std::string> not_compared;  // inputs that have no counterpart here
  std::optional<Difference> logits;
  std::optional<Difference> step_logits;
  GreedyReport greedy;
  std::string answer_problem;  // of the whole answer, where the reference ran to its stop token

  std::string first_diverging_tap;  // empty: none
  bool passed = false;
};

struct VerifyOptions {
  double tolerance = 1e-4;        // of a largest error relative to the largest magnitude
  double pixel_tolerance = 1e-4;  // the same of the processor's output, which has no 16-bit form
  KvDType kv_cache_dtype = KvDType::kF32;
  // A greedy token must be the reference's where its margin exceeds so many times the step's largest error.
  // Two logits may err towards each other: 2 is what errors as large as the margins need.
  double errors_a_margin = 1;
  MediaOptions media = {};  // for cases that name no limits of their own
};

/// Called after each case, with its index and the number of cases.
using CaseCallback = FunctionRef<void(const CaseReport&, std::size_t index, std::size_t n_cases)>;

/// Runs all cases. A case that throws is reported as failed; the others still run.
std::vector<CaseReport> verify_model(LoadedModel& model, const GoldenSet& golden,
                                     const VerifyOptions& options, CaseCallback on_case);
std::vector<CaseReport> verify_model(LoadedModel& model, const GoldenSet& golden,
                                     const VerifyOptions& options);

// Parts of it, for tests.

/// Pixels of the items against one tensor of a processor: [n, ...] with one entry an item (padded with zeros
/// along the next dimension where items differ in size), or the items' rows one after another.
Difference compare_pixels(const std::vector<MediaItem>& items, const TensorView& reference);
/// The largest change that one grey level of a picture makes in the processor's output, from its
/// rescale_factor and image_std; 0 when the directory does not say.
double grey_level(const LoadedModel& model);
/// The difference with a problem, or else the largest relative one; null for an empty list.
const NamedDifference* worst(const std::vector<NamedDifference>& list);
/// Whether the reference's greedy ids follow from these logits [n, V].
GreedyReport compare_greedy(const TensorView& step_logits, const GoldenCase& golden,
                            double errors_a_margin = 1);
/// Empty when equal, else where they differ; placeholders of media in `ours` may be absent from `golden`.
std::string compare_prompts(std::string_view ours, std::string_view golden, const ModelInfo& info);

}  // namespace triptych
