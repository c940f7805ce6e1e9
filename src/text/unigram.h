// The Unigram language model: the segmentation with the best sum of scores, by Viterbi over a trie.
// Sources: Kudo 2018 (arXiv:1804.10959); Hugging Face tokenizers 0.23 models/unigram (sums in double
// precision, the first of equals wins, unknown characters fuse).
#pragma once

#include "text/token_model.h"

namespace triptych {

struct UnigramOptions {
  std::int32_t unk_id = -1;  // -1: none
  bool byte_fallback = false;
};

/// scores[id] belongs to the vocabulary's token id; ids have no gaps.
std::unique_ptr<TokenModel> make_unigram(Vocab vocab, std::vector<double> scores, UnigramOptions options,
                                         std::string_view where);

}  // namespace triptych
