// What speculative decoding gains and loses: answers with and without drafts, in turn, on prompts whose
// answers are known to repeat them, in part, or to look so and go on differently.
//
// The answers are forced (sequence_bias: which token follows which), so that random weights will do: the
// model's work is the same whatever it says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load.h"

namespace triptych {

struct SpeculationBenchOptions {
  SpeculativeOptions speculation = {};
  std::int64_t prompt_tokens = 640;
  std::int64_t decode_tokens = 128;
  int n_repeats = 3;
  int n_sequences = 1;  // answered at once
  KvDType kv_cache_dtype = KvDType::kF16;
  bool replay_steps = true;
};

struct SpeculationTrace {
  std::string name;         // "extraction", "half", "decoy" or "free"
  double tokens_per_s = 0;  // of an answer, medians
  double plain_tokens_per_s = 0;
  double speedup = 0;  // median over pairs of runs in turn
  double lowest_speedup = 0, highest_speedup = 0;
  std::int64_t n_drafted = 0, n_accepted = 0;  // of all runs
  bool is_same = true;                         // every answer with drafts was the one without
};

/// Throws Error(kInvalidArgument) where prompt and answer are more than the model was trained for.
///   extraction: stretches of 24 tokens of the prompt;
///   half: stretches of 8 tokens of the prompt between as many that stand nowhere;
///   decoy: each second token ends a pair of the prompt that goes on otherwise there;
///   free: nothing repeats.
std::vector<SpeculationTrace> run_speculation_bench(LoadedModel& model,
                                                    const SpeculationBenchOptions& options);

}  // namespace triptych
