// How the next token is chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triptych/export.h"  // the namespace

namespace triptych::api {

/// Named as in OpenAI's API and vLLM; the order in which the parts work is that of Hugging Face generate(). A
/// seed gives the same tokens on every machine and thread count. Engine::submit and Model::check_sampling
/// check the ranges. Logits processors of generation_config.json that have no field here (suppress_tokens,
/// no_repeat_ngram_size, min_new_tokens, ...) work on every answer; its max_length counts where max_tokens is
/// 0.
struct SamplingParams {
  float temperature = 0.0F;         // 0: greedy
  int top_k = 0;                    // 0 or -1: all
  float top_p = 1.0F;               // (0, 1]
  float min_p = 0.0F;               // [0, 1]
  float typical_p = 1.0F;           // (0, 1]; Meister et al. 2022
  float repetition_penalty = 1.0F;  // (0, 10]; Keskar et al. 2019; over prompt and answer
  float frequency_penalty = 0.0F;   // [-2, 2]; over the answer
  float presence_penalty = 0.0F;    // [-2, 2]; over the answer
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // id, [-100, 100]
  std::optional<std::uint64_t> seed = {};                       // absent: drawn at submission
  std::int64_t max_tokens = 0;                                  // of the answer; 0: what the context leaves
  std::vector<std::string> stop = {};                           // the answer ends before the first of these
  std::vector<std::int32_t> stop_token_ids = {};                // beside the model's own
  bool ignore_eos = false;                                      // go on after the model's own stop token
  int n_logprobs = -1;  // -1: none; 0: of the chosen token only; n: and the n best
  int n = 1;            // [1, 128]; answers that are wanted: Result::choices. Drawn apart, from one seed
  int best_of = 0;      // n to 128 answers of which the n with the highest sum of logprobs are kept; 0: n

  // What the answer has to be, as a whole; at most one of these, named as in vLLM. The answer ends where its
  // text is whole; max_tokens or a stop string may cut it before. docs/constrained.md has the subsets.
  std::string guided_json = {};                 // a document of this JSON schema
  std::string guided_regex = {};                // a text that this regular expression matches
  std::vector<std::string> guided_choice = {};  // one of these
  std::string guided_grammar = {};              // a text of this grammar (GBNF)
};

struct TokenLogprob {
  std::int32_t id = 0;
  /// Natural logarithm, of the model's own distribution (before penalties and temperature).
  float logprob = 0.0F;
};

struct SampledToken {
  std::int32_t id = 0;
  float logprob = 0.0F;           // as TokenLogprob::logprob
  std::vector<TokenLogprob> top;  // n_logprobs best, best first
};

}  // namespace triptych::api
