// tokenizer.model: SentencePiece's protobuf, encoded by libsentencepiece. The library never sees bytes from
// outside: the file is taken apart here, every value checked, and a clean model written for it; the character
// map, whose look-ups it does not check, runs here. Sources: sentencepiece 0.1.97
// src/sentencepiece_model.proto, src/normalizer.cc.
//
// Around it, as transformers' slow LlamaTokenizer: added tokens split the text first. legacy (the default
// without a tokenizer_config.json entry): each part between them is encoded by itself, with the model's dummy
// prefix. Not legacy: only a text's beginning gets "▁", and spaces at the start of later parts stay.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_config.h"
#include "text/tokenizer_impl.h"

namespace triptych {

/// What this program uses of a ModelProto.
struct SentencePieceProto {
  enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0.0F;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;
  bool is_bpe = false;  // else Unigram
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string charsmap;
  std::int32_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;  // -1: none

  /// Reads and checks the bytes of a file. Throws Error(kInvalidFile) or Error(kUnsupported).
  static SentencePieceProto parse(std::string_view bytes, std::string_view where);
  /// The bytes of a model with these pieces and no character map.
  std::string serialize() const;
};

/// Fills what the file says into `config` where the configuration is silent (BOS, EOS, PAD and unknown token,
/// add_bos).
std::unique_ptr<TokenizerImpl> parse_sentencepiece(std::string_view bytes, std::string_view source_name,
                                                   TokenizerConfig& config);

}  // namespace triptych
