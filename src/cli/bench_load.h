// triptych bench --serve: many requests to a server, over HTTP.
#pragma once

#include <optional>
#include <string>

#include "cli/bench_serve.h"

namespace triptych::cli {

/// Flags of bench --serve beside those that say which requests come when (ServeFlags).
struct LoadFlags {
  std::string url;
  std::string model;   // empty: the first that the server names
  std::string fields;  // JSON
  double timeout_s = 600;

  void add_to(CLI::App& app);
  bool wanted() const noexcept { return !url.empty(); }
  /// Throws Error(kInvalidArgument) naming a flag that was given and says nothing of a server elsewhere.
  void check_alone() const;
  /// The same for what says nothing without --serve.
  void check_unused() const;

 private:
  const CLI::App* app_ = nullptr;
};

/// What the rest of the command line says.
struct LoadSetting {
  std::optional<std::string> html;
  bool json = false, quiet = false;
  int n_requests = 200;  // --requests, without a trace
};

/// Returns the exit code: 1 when a request failed.
int bench_load(const LoadFlags& flags, ServeFlags serve, const LoadSetting& setting);

}  // namespace triptych::cli
