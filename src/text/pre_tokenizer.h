// Pre-tokenizers of tokenizer.json ("pre_tokenizer"): ByteLevel, Metaspace, Split, Whitespace,
// WhitespaceSplit, Punctuation, Digits, BertPreTokenizer, CharDelimiterSplit, FixedLength, Sequence.
// Behaviour as in Hugging Face tokenizers 0.23. They cut a normalised text into the pieces that the model
// encodes one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace triptych {

/// A part of PieceList::text.
struct Piece {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool at_start = false;  // its first byte came from the first byte of the whole input
};

struct PieceList {
  std::string text;
  std::vector<Piece> pieces;
  /// Per byte of the text the byte of the input it came from; empty when that is not known (any more). Then
  /// only a piece that starts where its parent did can be at_start.
  std::vector<std::uint32_t> origin;

  std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(pieces[i].begin, pieces[i].end - pieces[i].begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list) const = 0;
  /// True when Piece::at_start matters.
  virtual bool needs_start() const { return false; }
  /// The most bytes that one byte can become.
  virtual double max_growth() const { return 1; }
  /// True when pieces can be whole paragraphs (nothing cuts at words).
  virtual bool long_pieces() const { return false; }
};

/// From the JSON value of "pre_tokenizer"; null for a JSON null. Throws Error(kInvalidFile), also for a chain
/// that could make a text many times as long, or Error(kUnsupported) that names an unknown type.
std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const JsonView& view);

}  // namespace triptych
