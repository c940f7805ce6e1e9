// Normalizers of tokenizer.json ("normalizer"): BertNormalizer, Strip, StripAccents, NFC, NFD, NFKC, NFKD,
// Sequence, Lowercase, Nmt, Precompiled, Replace, Prepend, ByteLevel. Behaviour as in Hugging Face tokenizers
// 0.23.
#pragma once

#include <memory>

#include "base/json.h"
#include "text/normalized_text.h"

namespace triptych {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

/// From the JSON value of "normalizer"; null for a JSON null. Throws Error(kInvalidFile), or
/// Error(kUnsupported) that names an unknown type.
std::unique_ptr<Normalizer> parse_normalizer(const JsonView& view);

}  // namespace triptych
