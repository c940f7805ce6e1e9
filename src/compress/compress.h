// From a published checkpoint to a directory several times smaller: the passes of a recipe
// (compress/recipe.h), stage by stage. For each stage the model runs over the calibration data with
// everything before it quantized already. The directory is one that `triptych convert` could have written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "compress/compress_report.h"
#include "compress/recipe.h"
#include "engine/load.h"

namespace triptych::compress {

/// What is being done, for a bar: `n_done` pieces of work of `n` are finished, and which is worked on.
struct CompressProgress {
  std::string activity;  // "sensitivity", "compress"
  std::string what;
  std::int64_t n_done = 0, n = 0;
};

struct CompressOptions {
  LoadOptions load;  // how the checkpoint is opened; weight_formats must be empty
  Recipe recipe;
  std::map<std::string, QuantFormat> formats_of =
      {};  // of single linears (LinearId::text), before the recipe's
  std::filesystem::path data;
  std::size_t max_gram_bytes = std::size_t{2} << 30;  // of the linears that are worked on at once
  bool replace = false;
  /// Before each piece of work. May throw to end the run.
  std::function<void(const CompressProgress&)> progress = {};
};

/// Throws Error; nothing is left behind in `to` then. The recipe goes into `to` as recipe.yaml.
CompressReport compress_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                   const CompressOptions& options);

}  // namespace triptych::compress
