// Which layers of the language model a draft may leave out (self-speculative decoding; Zhang et al. 2024,
// Draft & Verify), and how they are found: greedily, by the share of tokens on which the model without them
// agrees with the whole one.
//
// Nothing is lost by a bad choice but speed: every drafted token is judged by the whole model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/load.h"

namespace triptych {

/// Throws Error(kInvalidArgument) naming `field` unless these are different layers of n_layers, at least one,
/// and at least one layer stays.
void check_skipped_layers(std::string_view field, std::span<const std::int32_t> layers, int n_layers);

/// config.json as a converted directory has it: "self_draft": {"skipped_layers": [...], "acceptance": x}.
/// Without one, a "layerdrop" above 0 (at the top or in text_config) says that layers were dropped at random
/// in training (Fan et al. 2020): then every floor(1 / layerdrop)-th layer is left out, as there. Nothing
/// where neither is. Throws Error(kInvalidFile) naming the field.
SelfDraft read_self_draft(const JsonView& config, int n_layers);
/// What read_self_draft reads.
Json to_json(const SelfDraft& draft);

/// What a draft costs and gives, in time of a plain decode step: k drafted tokens of `draft_cost` each, a
/// step of k + 1 rows, and 1 + a + ... + a^k tokens that come of it. The best over k up to `max_tokens`.
double expected_speedup(double acceptance, double draft_cost, int max_tokens);

struct SelfDraftSearch {
  int n_answer_tokens = 48;  // of each answer
  int max_tokens = 8;        // drafted at once, for the speed that is expected
};

/// Answers about these pictures with the whole model, greedily, then looks for the layers whose leaving out
/// is expected to gain most: one more at a time, the one without which most tokens of the answers stay the
/// likeliest. The first and the last layer stay. Empty when nothing gains. Throws Error(kInvalidArgument)
/// without a picture. `progress` (may be empty) is called before each pass, of at most `n_passes`.
SelfDraft find_self_draft(
    LoadedModel& model, const std::vector<MediaInput>& pictures, const SelfDraftSearch& search = {},
    const std::function<void(std::int64_t n_done, std::int64_t n_passes)>& progress = {});

}  // namespace triptych
