// --speculative and what goes with it.
#pragma once

#include <CLI/CLI.hpp>

#include "api/public.h"

namespace triptych::cli {

struct SpeculationFlags {
  api::SpeculativeOptions options;

  void add_to(CLI::App& app);
  bool wanted() const { return options.method != "none"; }
  /// Throws Error(kInvalidArgument) for a flag that was given and would change nothing, or a least number
  /// above the largest.
  void check() const;

 private:
  const CLI::App* app_ = nullptr;
};

}  // namespace triptych::cli
