// The ragged batch of a step, out of the rows of its sequences. Arithmetic on ids and indices: no model, no
// cache is touched.
//
// Where a token stands for the rotary embedding (positions) and where its key and value lie (cache index) are
// two things: a cache may hold fewer tokens than the sequence has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/model.h"
#include "tensor/tensor.h"

namespace triptych {

/// What one sequence feeds in a step: n >= 1 tokens, one after another. Spans are borrowed.
struct SequenceRows {
  std::span<const std::int32_t> token_ids;  // [n]
  std::span<const std::int32_t> positions;  // [n * n_axes], token by token
  std::int64_t first_token = 0;             // index of the first of them in the sequence
  std::int64_t n_prompt = 0;                // tokens of the sequence's prompt
  std::int64_t n_dropped = 0;  // tokens of the prompt that are not in the sequence, but count in its lengths
  std::int64_t first_cache_index = 0;  // keys and values go here and behind; a row sees those up to its own
  std::span<const std::int32_t> blocks = {};      // cache index i lies in blocks[i / block_tokens]
  std::span<const std::int32_t> logit_rows = {};  // of [0, n), ascending: whose logits are wanted
  // Media of the prompt: where rows stand for tokens (MediaRun::first_prompt_row is an index in the
  // sequence), and the rows of each item [n_tokens, D], empty where none of them is fed in this step.
  std::span<const MediaRun> runs = {};
  std::span<const Tensor> media_rows = {};
};

class BatchBuilder {
 public:
  /// `n_axes` positions a token. Batches of up to `n_rows` rows and `n_sequences` sequences lie at the same
  /// addresses, so that a recorded step finds them.
  BatchBuilder(int n_axes, int block_tokens, std::size_t n_rows, std::size_t n_sequences);

  /// The sequences' rows one after another; logits in the same order. The batch is valid until the next call.
  /// Throws Error(kInternal) for rows that have no block, no positions or no media rows.
  Batch build(std::span<const SequenceRows> sequences, KvCache* cache);

 private:
  void add(const SequenceRows& s, std::size_t n_total);
  void add_media(const SequenceRows& s, std::int64_t first_row);

  int n_axes_;
  int block_tokens_;
  std::vector<std::int32_t> ids_, positions_, slots_, logit_rows_;
  std::vector<RowLengths> lengths_;
  std::vector<KvSequence> sequences_;
  std::vector<EmbeddingOverride> overrides_;
  std::vector<std::int32_t> override_rows_;
};

}  // namespace triptych
