// --visual-cache-size, --visual-cache-gb, --visual-cache-dtype, --visual-cache-dir, --visual-cache-dir-gb:
// what is kept of pictures.
#pragma once

#include <cstdint>
#include <string>

#include "api/public.h"

namespace CLI {
class App;
}

namespace triptych {
struct VisionCacheOptions;
}

namespace triptych::cli {

struct VisualCacheFlags {
  std::int64_t n_pictures = 2048;
  double memory_gb = 0.25;
  std::string dtype = "fp32";
  std::string directory;
  double directory_gb = 4;

  void add_to(CLI::App& app);
  void apply_to(api::EngineOptions& options) const;
  /// For the verbs that look into the engine.
  VisionCacheOptions inner_options() const;
  std::size_t memory_bytes() const noexcept;
};

}  // namespace triptych::cli
