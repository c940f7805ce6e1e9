// A request on its way through the engine: its tokens, how many of them are in the key/value cache, and what
// has become of its answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/answer_text.h"
#include "engine/batch_builder.h"
#include "engine/choices.h"
#include "engine/image_token_keep.h"
#include "engine/prefix_key.h"
#include "engine/request.h"
#include "engine/request_times.h"
#include "engine/sampling.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/stop_strings.h"

namespace triptych {

enum class SequenceStatus {
  kWaiting,   // for a place or for blocks; holds none
  kRunning,   // takes part in steps
  kFinished,  // its result is complete; holds nothing
};

struct Sequence {
  RequestId id = 0;
  SequenceStatus status = SequenceStatus::kWaiting;
  Ticket ticket;
  std::int64_t n_picture_blocks = 0;  // blocks whose memory its pictures take (MemoryBudget)
  double deadline_ms = std::numeric_limits<double>::infinity();  // by the scheduler's clock

  // Prompt and answer so far, the token that was sampled last included.
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;  // [n_tokens * n_axes], token by token
  std::int64_t n_prompt = 0;            // of the tokens
  std::int64_t n_computed = 0;          // of the tokens: their keys and values are in the cache
  std::int32_t next_position = 0;       // of the next token of the answer, on every axis
  std::vector<std::int32_t> blocks;     // token t lies in blocks[t / kBlockTokens]

  PrefixChain prefix;                                           // keys of its pages
  std::size_t n_published = 0;                                  // of its pages: the prefix cache knows them
  std::vector<std::pair<Fingerprint, std::int32_t>> own_pages;  // of them, by key and block: from this one

  std::vector<MediaItem> media;    // pixels go when an item is encoded
  std::vector<MediaRun> runs;      // where its rows stand for tokens of the prompt
  std::vector<Tensor> media_rows;  // of each item [n_tokens, D], or what stays of it; empty: not encoded
  std::vector<MediaPlan> plans;    // of the media, also when they are gone

  std::unique_ptr<ImageTokenKeep> keep;  // null: all tokens of the media stay
  std::int64_t n_dropped = 0;            // tokens of the prompt that are not among `tokens`

  std::int64_t max_tokens = 0;  // of the answer
  std::unique_ptr<Sampler> sampler;
  bool keeps_logprobs = false;           // in its result
  std::unique_ptr<AnswerText> text;      // null without a tokenizer
  std::unique_ptr<SequenceDraft> draft;  // null without speculation
  StopStrings stops;
  TokenCallback on_token;
  bool cancelled = false;

  int choice = 0;                                   // index among the choices of its request
  std::shared_ptr<ChoiceGroup> group;               // null: the only one
  std::vector<std::unique_ptr<Sequence>> siblings;  // further choices, until the prompt is computed
  GenerationResult result;
  RequestTimes times;
  std::exception_ptr failure;  // what ended it, with FinishReason::kError

  std::int64_t n_tokens() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  PrefixTokens prefix_tokens() const { return {tokens, positions}; }
  bool finished() const noexcept { return status == SequenceStatus::kFinished; }
  std::span<const std::int32_t> answer() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(n_prompt));
  }
  /// Some of the item's rows stand for tokens that are still to be computed, and it was not encoded.
  bool must_encode(std::size_t item) const {
    return media_rows[item].view().empty() && std::any_of(runs.begin(), runs.end(), [&](const MediaRun& run) {
             return run.media_index == static_cast<int>(item) &&
                    run.first_prompt_row + run.n_rows > n_computed;
           });
  }

  /// Of the tokens, those that can be fed: they end before the first whose picture is to be encoded.
  std::int64_t n_ready() const;

  /// Takes the prompt. Throws Error(kInvalidArgument) when it is empty.
  void set_prompt(const PromptLayout& layout, int n_axes);
  /// Memory for `n_more` tokens.
  void reserve(std::int64_t n_more, int n_axes);
  /// The answer goes on with `token_id`.
  void append(std::int32_t token_id, int n_axes);
  /// The last `n` tokens never came.
  void take_back(std::int64_t n, int n_axes);
  /// The next `n_rows` tokens as a step takes them; borrows from this sequence.
  SequenceRows rows(std::int64_t n_rows, int n_axes, std::span<const std::int32_t> logit_rows) const;
};

}  // namespace triptych
