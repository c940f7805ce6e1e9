#include "cli/speculation_flags.h"

#include "base/error.h"
#include "cli/help_tree.h"

namespace triptych::cli {

void SpeculationFlags::add_to(CLI::App& app) {
  app_ = &app;
  const auto add = [&](const char* name, auto& to, const char* description) {
    return app.add_option(name, to, description)->group(help_group::kMachine);
  };
  add("--speculative", options.method,
      "Draft tokens and judge several in a step: by looking up what followed the last ones before (ngram), "
      "or with some of "
      "the model's layers left out (self-draft); none. The answers are the same; where it does not pay it "
      "stops")
      ->check(CLI::IsMember({"none", "ngram", "self-draft"}))
      ->type_name("METHOD")
      ->capture_default_str();
  add("--num-speculative-tokens", options.num_speculative_tokens, "Tokens drafted at once, at most")
      ->check(CLI::Range(1, 32).description(""))
      ->type_name("N")
      ->capture_default_str();
  add("--prompt-lookup-max", options.prompt_lookup_max, "Last tokens that ngram looks for, at most")
      ->check(CLI::Range(1, 32).description(""))
      ->type_name("N")
      ->capture_default_str();
  add("--prompt-lookup-min", options.prompt_lookup_min, "And at least")
      ->check(CLI::Range(1, 32).description(""))
      ->type_name("N")
      ->capture_default_str();
}

void SpeculationFlags::check() const {
  const auto needs = [&](const char* flag, bool is_met, const char* what) {
    if (app_->count(flag) > 0 && !is_met)
      fail(ErrorCode::kInvalidArgument, "{} needs --speculative {}", flag, what);
  };
  needs("--num-speculative-tokens", wanted(), "ngram or self-draft");
  needs("--prompt-lookup-max", options.method == "ngram", "ngram");
  needs("--prompt-lookup-min", options.method == "ngram", "ngram");
  if (options.method == "ngram" && options.prompt_lookup_min > options.prompt_lookup_max)
    fail(ErrorCode::kInvalidArgument, "--prompt-lookup-min {} is above --prompt-lookup-max {}",
         options.prompt_lookup_min, options.prompt_lookup_max);
}

}  // namespace triptych::cli
