// WordPiece (greedy, longest piece first) and WordLevel (a word is a token or unknown), as Hugging Face
// tokenizers 0.23.
#pragma once

#include <string>

#include "text/token_model.h"

namespace triptych {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  std::size_t max_input_chars_per_word = 100;
};

std::unique_ptr<TokenModel> make_word_piece(Vocab vocab, WordPieceOptions options);
std::unique_ptr<TokenModel> make_word_level(Vocab vocab, std::string unk_token);

}  // namespace triptych
