#include "cli/prefix_cache_flags.h"

#include <cstdint>
#include <limits>

#include <CLI/CLI.hpp>

namespace triptych::cli {

void PrefixCacheFlags::add_to(CLI::App& app, const std::string& group, const std::string& otherwise) {
  app.add_flag_function(
         "--enable-prefix-caching,!--no-enable-prefix-caching", [this](std::int64_t n) { enabled = n > 0; },
         "Keep keys and values, so that prompts with the same beginning share them" + otherwise)
      ->group(group);
  app.add_option("--prefix-cache-gb", gb, "Most memory of the prefix cache, GiB")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->type_name("X")
      ->default_str("what the context takes")
      ->group(group);
}

std::size_t PrefixCacheFlags::bytes(bool by_default) const {
  if (!enabled.value_or(by_default || gb.has_value())) return 0;
  if (!gb) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(*gb * static_cast<double>(std::size_t{1} << 30));
}

}  // namespace triptych::cli
