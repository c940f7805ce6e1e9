// Several answers to one request (SamplingParams::n and best_of): sequences that share the pages of the
// prompt and go on by themselves.
#pragma once

#include <vector>

#include "engine/request.h"

namespace triptych {

/// What the sequences of one request have in common.
struct ChoiceGroup {
  int n = 1;       // choices that are returned
  int n_open = 1;  // sequences that have not ended
};

/// The result of a request out of those of its sequences, in the order of their choices: the first `n` of
/// them, or when there are more the `n` with the highest sum of log probabilities, the best first; those that
/// failed come last. The result is the first one's; its `choices` are all of them.
GenerationResult combine_choices(std::vector<GenerationResult> results, int n);

}  // namespace triptych
