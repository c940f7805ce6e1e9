#include "cli/scheduler_flags.h"

#include <cstddef>

#include <CLI/CLI.hpp>

#include "api/public.h"
#include "engine/engine.h"

namespace triptych::cli {
namespace {

template <typename Options>
void fill_any(const SchedulerFlags& flags, Options& options) {
  options.max_batch_tokens = flags.max_batch_tokens;
  options.max_batch_patches = flags.max_batch_patches;
  options.max_step_ms = flags.max_step_ms;
  options.memory_limit_bytes = static_cast<std::size_t>(flags.memory_limit_gib * (1 << 30));
}

}  // namespace

void SchedulerFlags::add_to(CLI::App& app, const char* group) {
  app.add_option("--max-num-batched-tokens", max_batch_tokens,
                 "Tokens of a step; longer prompts take several, beside the answers of others")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-num-batched-patches", max_batch_patches,
                 "Patches that go through the vision tower together, of the pictures of several questions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--max-step-ms", max_step_ms,
         "While others are being answered a step should take no longer: prompts and pictures go on in "
         "pieces in between")
      ->check(CLI::Range(0.1, 1e6).description(""))
      ->type_name("MS")
      ->default_str("no limit")
      ->group(group);
  app.add_option(
         "--memory-limit", memory_limit_gib,
         "GiB for weights, keys and values, scratch memory and pictures; what could never fit is refused")
      ->check(CLI::Range(1e-3, 1e6).description(""))
      ->type_name("GIB")
      ->default_str("no limit")
      ->group(group);
}

void SchedulerFlags::fill(EngineOptions& options) const { fill_any(*this, options); }
void SchedulerFlags::fill(api::EngineOptions& options) const { fill_any(*this, options); }

}  // namespace triptych::cli
