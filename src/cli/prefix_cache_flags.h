// --enable-prefix-caching and --prefix-cache-gb.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace triptych::cli {

struct PrefixCacheFlags {
  std::optional<bool> enabled;  // not given: with --prefix-cache-gb, or what the verb does by itself
  std::optional<double> gb;     // GiB; not given: as much as the key/value cache holds

  /// `otherwise`: what the help says about neither.
  void add_to(CLI::App& app, const std::string& group, const std::string& otherwise);
  /// EngineOptions::prefix_cache_bytes.
  std::size_t bytes(bool by_default = false) const;
};

}  // namespace triptych::cli
