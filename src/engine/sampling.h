// Choosing the next token. The order is that of Hugging Face generate(): logits processors
// (logits_processors.h, the repetition penalty among them), frequency and presence penalties, logit bias, the
// tokens that a constraint lets through, temperature, top_k, top_p, min_p, typical_p, then a draw from a
// counter-based generator, so that a seed gives the same tokens on every machine and thread count.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/logits_processors.h"
#include "grammar/constraint.h"

namespace triptych {

/// Named as in OpenAI's API and vLLM. Ranges are checked by validate().
struct SamplingParams {
  float temperature = 0.0F;         // 0: greedy
  int top_k = 0;                    // 0 or -1: all
  float top_p = 1.0F;               // (0, 1]
  float min_p = 0.0F;               // [0, 1]
  float typical_p = 1.0F;           // (0, 1]; Meister et al. 2022
  float repetition_penalty = 1.0F;  // (0, 10]; Keskar et al. 2019; over prompt and answer
  float frequency_penalty = 0.0F;   // [-2, 2]; over the answer
  float presence_penalty = 0.0F;    // [-2, 2]; over the answer
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // id, [-100, 100]
  std::optional<std::uint64_t> seed;                       // absent: drawn at submission
  std::int64_t max_tokens = 0;                             // of the answer; 0: what the context leaves
  std::vector<std::string> stop;                           // the answer ends before the first of these
  std::vector<std::int32_t> stop_token_ids;                // beside the model's own
  bool ignore_eos = false;
  LogitsProcessorParams processors;
  ConstraintSpec constraint;  // what the answer has to be
  int n_logprobs = -1;        // -1: none; 0: of the chosen token only; n: and the n best
  int n = 1;                  // [1, 128]; answers that are wanted
  int best_of = 0;            // n to 128 answers of which the n likeliest are returned; 0: n

  int n_sequences() const noexcept { return best_of > n ? best_of : n; }
  /// Throws Error(kInvalidArgument) naming field and range. `vocab_size` bounds the ids.
  void validate(std::int64_t vocab_size) const;
  /// Tokens that an answer to a prompt of n_prompt tokens may have: max_tokens, else what
  /// processors.max_length leaves; at most `room`. Throws Error(kContextLength) when max_length leaves
  /// nothing.
  std::int64_t max_answer_tokens(std::int64_t n_prompt, std::int64_t room) const;
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob =
      0.0F;  // natural logarithm, of the model's own distribution (before penalties and temperature)
};

struct SampledToken {
  std::int32_t id = 0;
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  // n_logprobs best, best first
};

/// State of one sequence's draws.
class Sampler {
 public:
  /// `n_usable`: ids from here on are never chosen and in no list (padding rows). `never`: nor are these
  /// chosen. `eos`: ids that end an answer, for processors that hold them back. `constraint` (null: none): is
  /// params.constraint, at its start. Under it an answer ends where its text is whole, and no processor ends
  /// it before. `stream`: of the numbers that `seed` gives; sequences of one request differ by it.
  Sampler(SamplingParams params, std::uint64_t seed, std::int64_t n_usable, std::vector<std::int32_t> never,
          std::vector<std::int32_t> eos = {}, std::unique_ptr<Constraint> constraint = nullptr,
          std::uint64_t stream = 0);

  /// Tokens of the prompt, for processors.
  void observe_prompt(std::span<const std::int32_t> ids);
  /// Chooses from logits [V] (kept as they are) and remembers the choice. -infinity: never. Throws
  /// Error(kInvalidFile) when a usable logit is not a number or +infinity, Error(kInternal) when all are
  /// -infinity, Error(kInvalidArgument) when all are that the constraint lets through.
  SampledToken sample(std::span<const float> logits);
  const SamplingParams& params() const noexcept { return params_; }
  /// How many of these tokens, one after another, the constraint lets follow; without one all. Changes
  /// nothing.
  std::size_t n_let_through(std::span<const std::int32_t> ids) const;

  bool is_constrained() const noexcept { return constraint_ != nullptr; }
  /// With a constraint: the bytes of the answer that the token chosen last stands for, none for one that ends
  /// it.
  const std::string& last_bytes() const noexcept { return last_bytes_; }
  /// The constraint lets nothing follow.
  bool must_end() const { return constraint_ != nullptr && constraint_->must_end(); }

 private:
  void take_logits(std::span<const float> raw);
  void penalize();
  void constrain();
  bool ends(std::int32_t id) const;
  void list_logprobs(std::span<const float> logits, SampledToken& out);
  std::int32_t draw(float top);

  SamplingParams params_;
  Rng rng_;
  std::int64_t n_usable_;
  std::vector<std::int32_t> never_;
  LogitsProcessors processors_;
  std::unique_ptr<Constraint> constraint_;
  std::vector<std::int32_t> ends_;   // with a constraint: ids that end the answer
  std::vector<std::uint32_t> mask_;  // with a constraint: a bit for each id
  std::string last_bytes_;
  std::vector<std::int32_t> answer_counts_;  // [V]; only with frequency or presence penalties
  std::vector<float> work_;                  // [V]
  std::vector<std::pair<float, std::int32_t>> candidates_;
};

}  // namespace triptych
