// From a published checkpoint to a directory several times smaller: the passes of weight quantization, block
// by block. For each block the model runs over the calibration data with the blocks before it quantized
// already; scale moves between the block's channels (compress/equalize.h), and its matrices are rounded with
// feedback (compress/gptq.h). The directory is one that `triptych convert` could have written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compress/calibration_data.h"
#include "engine/packed_directory.h"

namespace triptych::compress {

struct CompressOptions {
  LoadOptions load;       // how the checkpoint is opened; weight_formats must be empty
  WeightFormats formats;  // what its parts become
  std::map<std::string, QuantFormat> formats_of = {};  // of single linears (LinearId::text), before `formats`
  /// Bits a weight that all linears together may take on average, scales included; 0: each takes its format
  /// of `formats`. Then each takes one of `choices`, by what it costs in divergence (compress/budget.h).
  double bits = 0;
  std::vector<QuantFormat> choices = {};
  std::size_t n_sensitivity_samples = 64;
  std::filesystem::path data;
  CalibrationOptions calibration;
  bool equalize = true;
  bool gptq = true;      // false: every weight to its nearest code
  float clip_to = 0.7F;  // smallest share of a group's range that the search of scales tries; 1: no search
  double damping = 0.01;
  std::size_t max_gram_bytes = std::size_t{2} << 30;  // of the linears that are worked on at once
  bool replace = false;
  /// Before each piece of work: what is done, and how much of all of it.
  std::function<void(const std::string& what, std::int64_t n_done, std::int64_t n)> progress = {};
};

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

struct EqualizationReport {
  std::string reader;
  double activation_power = 0, weight_power = 0;
  double gain = 1;  // estimated error after, as a share of that before
};

struct CompressReport {
  std::vector<LinearReport> linears;
  std::vector<SensitivityReport> sensitivities;
  std::vector<EqualizationReport> equalizations;
  std::vector<std::string> kept;       // linears that stay floats
  std::vector<std::string> unreached;  // that no sample reaches: rounded to nearest
  ConvertReport written;
  std::int64_t n_samples = 0, n_image_tokens = 0, n_text_tokens = 0;
  std::string data_fingerprint;
  double seconds = 0;

  /// Of the weights of all linears that were quantized.
  double bits_per_weight() const;
};

/// Throws Error; nothing is left behind in `to` then.
CompressReport compress_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                   const CompressOptions& options);

}  // namespace triptych::compress
