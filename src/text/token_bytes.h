// What each token of a vocabulary adds to a text, in bytes: for whoever chooses tokens by their text.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace triptych {

struct TokenBytes {
  /// By id, [vocab_size]; empty for ids without token and for special tokens. Not always whole characters.
  std::vector<std::string> tokens;
  /// A blank that begins the first token of a text is not part of it (SentencePiece's dummy prefix).
  bool drops_first_blank = false;
};

/// Joined they are the text that StreamDecoder gives but for what tidies up blanks afterwards
/// (clean_up_tokenization_spaces). Throws Error(kUnsupported) where the decoder gives a token's bytes only
/// beside others.
TokenBytes token_bytes(const Tokenizer& tokenizer);

}  // namespace triptych
