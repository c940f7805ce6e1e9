// What a compression would do, take and cost, without doing it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compress/compress.h"

namespace triptych::compress {

struct CompressPlan {
  struct Part {
    std::string name;
    std::int64_t n_linears = 0, n_weights = 0;
    double stored_bytes = 0, bytes = 0;  // of its linears: in the checkpoint, and in the formats of the plan
  };
  std::vector<Part> parts;
  std::vector<std::string> kept, unreached;
  std::size_t n_stages = 0;
  std::int64_t n_samples = 0, n_measurements = 0;  // of sensitivities
  double source_bytes = 0, other_bytes = 0;        // of all weights; of those that stay as they are
  /// By arithmetic: moments, float weights and feedback of the largest stage; all codes.
  double stage_bytes = 0, codes_bytes = 0;
  /// From the time of one conversation here, and of feedback on a small matrix.
  double sample_seconds = 0, seconds = 0;

  double total_bytes() const noexcept;
};

/// Reads the checkpoint and one conversation. Throws Error.
CompressPlan plan_compression(const std::filesystem::path& from, const CompressOptions& options);

}  // namespace triptych::compress
