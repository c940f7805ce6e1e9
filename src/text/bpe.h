// Byte pair encoding as Hugging Face's BPE model runs it: lowest rank first, leftmost first among equals.
// Sources: Sennrich et al. 2016 (arXiv:1508.07909); tokenizers 0.23 models/bpe for options and their order.
// A word costs O(n log n): short words a scan over an array, long ones a heap over a linked list.
#pragma once

#include <string>
#include <utility>

#include "text/token_model.h"

namespace triptych {

struct BpeMerge {
  std::int32_t left = -1;
  std::int32_t right = -1;
  std::int32_t product = -1;
  std::uint32_t rank = 0;
};

struct BpeOptions {
  std::string unk_token;                  // empty: none; parts without a token are dropped
  std::string continuing_subword_prefix;  // stands before each character but a word's first
  std::string end_of_word_suffix;         // stands behind a word's last character
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token is that token
  /// Pieces can be whole texts (no pre-tokenizer): cut them where no merge can reach across.
  bool long_pieces = false;
};

/// Two merges with the same pair: the later one counts, as in the reference.
std::unique_ptr<TokenModel> make_bpe(Vocab vocab, std::vector<BpeMerge> merges, BpeOptions options,
                                     std::string_view where);

}  // namespace triptych
