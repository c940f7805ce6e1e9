#include "cli/visual_cache_flags.h"

#include <CLI/CLI.hpp>

#include "cli/flag_checks.h"
#include "engine/vision_embedding_cache.h"

namespace triptych::cli {
namespace {

constexpr const char* kGroup = "Visual cache";
constexpr double kMaxGb = 1 << 20;

std::uint64_t bytes_of(double gb) { return static_cast<std::uint64_t>(gb * 1024 * 1024 * 1024); }

}  // namespace

void VisualCacheFlags::add_to(CLI::App& app) {
  const auto add = [&](const char* name, auto& to, const char* description, const char* type) {
    return app.add_option(name, to, description)->type_name(type)->group(kGroup)->capture_default_str();
  };
  add("--visual-cache-size", n_pictures, "Pictures whose embeddings are kept in memory", "N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
  add("--visual-cache-gb", memory_gb, "Memory for embeddings of pictures, in GiB; 0 keeps none there", "F")
      ->check(is_within(0, kMaxGb));
  add("--visual-cache-dtype", dtype, "Keep embeddings as fp32, exact, or int8, a quarter of the size", "TYPE")
      ->check(CLI::IsMember({"fp32", "int8"}));
  app.add_option(
         "--visual-cache-dir", directory,
         "Keep embeddings in this folder, too, so that a later start does not encode the same pictures "
         "again; several processes may share it")
      ->type_name("DIR")
      ->group(kGroup);
  add("--visual-cache-dir-gb", directory_gb, "Size of that folder, in GiB", "F")->check(is_within(0, kMaxGb));
}

std::size_t VisualCacheFlags::memory_bytes() const noexcept {
  return static_cast<std::size_t>(bytes_of(memory_gb));
}

void VisualCacheFlags::apply_to(api::EngineOptions& options) const {
  options.vision_cache_bytes = memory_bytes();
  options.vision_cache_items = n_pictures;
  options.vision_cache_dtype = dtype;
  options.vision_cache_dir = directory;
  options.vision_cache_dir_bytes = bytes_of(directory_gb);
}

VisionCacheOptions VisualCacheFlags::inner_options() const {
  return {.max_items = n_pictures,
          .dtype = parse_vision_rows_dtype(dtype),
          .directory = directory,
          .directory_max_bytes = bytes_of(directory_gb)};
}

}  // namespace triptych::cli
