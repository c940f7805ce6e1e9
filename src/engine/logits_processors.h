// What Hugging Face's generate() does to logits before temperature and filters, for one sequence, greedy or
// sampled. Source: transformers 5.24, generation/logits_process.py and GenerationMixin._get_logits_processor
// (whose order this keeps).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

class JsonView;

/// Named as in generation_config.json. The defaults change nothing.
struct LogitsProcessorParams {
  /// Adds to the logit of a sequence's last id where the ids before it are the last of prompt and answer.
  std::vector<std::pair<std::vector<std::int32_t>, float>> sequence_bias;
  /// Sequences that are never completed.
  std::vector<std::vector<std::int32_t>> bad_words_ids;
  float encoder_repetition_penalty = 1.0F;  // (0, 10]; over the prompt: above 1 makes its tokens likelier
  std::int64_t no_repeat_ngram_size = 0;    // no n ids in a row occur twice in prompt and answer; 0: off
  std::int64_t min_length = 0;              // of prompt and answer; before it the answer does not end
  std::int64_t min_new_tokens = 0;          // of the answer, likewise
  std::int64_t max_length = 0;              // of prompt and answer; 0: no limit of its own
  std::vector<std::int32_t> forced_eos_token_id;  // one of them is the last token that max_length allows
  /// (start, factor): after `start` tokens of the answer its end becomes likelier by factor^n, n tokens
  /// later.
  std::optional<std::pair<std::int64_t, float>> exponential_decay_length_penalty;
  std::vector<std::int32_t> suppress_tokens;        // never
  std::vector<std::int32_t> begin_suppress_tokens;  // not as the answer's first

  /// Reads the fields of generation_config.json; what one sequence at a time cannot do (beams, guidance, ...)
  /// is appended to `unsupported` by name when it is switched on. Throws Error(kInvalidFile) naming the
  /// field.
  static LogitsProcessorParams parse(const JsonView& generation_config,
                                     std::vector<std::string_view>& unsupported);
  /// Throws Error(kInvalidArgument) naming field and range; ids lie in [0, vocab_size).
  void validate(std::int64_t vocab_size) const;
  /// Nothing is changed, whatever comes.
  bool is_neutral() const noexcept;
};

/// The processors of one sequence.
class LogitsProcessors {
 public:
  /// `eos` ends an answer.
  LogitsProcessors(LogitsProcessorParams params, float repetition_penalty, std::vector<std::int32_t> eos);

  /// Whether run() can change anything; where not, ids need not be told.
  bool is_active() const noexcept { return is_active_; }
  void observe_prompt(std::span<const std::int32_t> ids);
  void observe_token(std::int32_t id);
  /// In place; logits [V], -infinity: never.
  void run(std::span<float> logits) const;

 private:
  void add_sequence_bias(std::span<float> logits) const;
  void penalize_repetition(std::span<float> logits) const;
  void ban_ngrams(std::span<float> logits) const;
  void hold_back_end(std::span<float> logits) const;
  void force_end(std::span<float> logits) const;
  /// ids but its last are the last of prompt and answer.
  bool follows(std::span<const std::int32_t> sequence) const;

  LogitsProcessorParams params_;
  float repetition_penalty_;
  std::vector<std::int32_t> eos_;
  bool is_active_;
  void note(std::int32_t id);
  std::vector<std::int32_t> ids_;       // prompt and answer
  std::vector<std::int32_t> distinct_;  // each of them once, those of the prompt first
  std::vector<bool> is_noted_;          // by id
  std::size_t n_distinct_prompt_ = 0;
  std::size_t n_prompt_ = 0;
};

}  // namespace triptych
