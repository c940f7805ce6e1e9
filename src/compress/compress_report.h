// What a compression tells of itself; `triptych compress --json` and the HTML report have the same numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/packed_directory.h"

namespace triptych::compress {

/// What became of one linear.
struct LinearReport {
  std::string name, part, format;
  std::int64_t n_weights = 0;
  double bits_per_weight = 0;
  /// Squared error of its outputs as a share of their energy, on the calibration data: rounded to nearest,
  /// and as it was written.
  double error_nearest = 0, error = 0;
  double damping = 0;
};

/// What one linear alone costs in a format: mean divergence of the answers' tokens, in nats.
struct SensitivityReport {
  std::string name, format;
  double divergence = 0;
};

/// A size, and the divergence that the sensitivities promise there, added up.
struct FrontPoint {
  double bits = 0;  // a weight
  double divergence = 0;
};

/// A size that was tried for --max-loss.
struct LossTrial {
  double bits = 0;
  double points_lost = 0;  // of exact match on the calibration's answers
};

struct EqualizationReport {
  std::string reader;
  double activation_power = 0, weight_power = 0;
  double gain = 1;  // estimated error after, as a share of that before
};

/// A projector whose weights make up for the errors of the tower in front of it. Squared errors of its
/// outputs against those of the original, on pictures that it was not fitted to.
struct FoldReport {
  std::string name;
  double alpha = 0, lambda = 0;
  double error_before = 0, error_after = 0;
};

/// A linear whose mean output was put right.
struct BiasReport {
  std::string name;
  double mean_square_shift = 0;  // of its bias, a channel
};

struct CompressReport {
  std::vector<LinearReport> linears;
  std::vector<SensitivityReport> sensitivities;
  std::vector<EqualizationReport> equalizations;
  std::vector<FrontPoint> front;
  std::vector<LossTrial> trials;
  std::vector<FoldReport> folds;
  std::vector<BiasReport> biases;
  std::vector<std::string> kept;       // linears that stay floats
  std::vector<std::string> unreached;  // that no sample reaches: rounded to nearest
  ConvertReport written;
  std::int64_t n_samples = 0, n_image_tokens = 0, n_text_tokens = 0;
  std::string data_fingerprint;
  std::string recipe;  // that was used, as YAML
  double seconds = 0;

  /// Of the weights of all linears that were quantized.
  double bits_per_weight() const;
};

}  // namespace triptych::compress
