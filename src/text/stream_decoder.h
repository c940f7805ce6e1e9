// Incremental decoding of generated ids for streaming: chunks are whole UTF-8 characters, and all chunks
// joined are byte for byte what Tokenizer::decode gives for the whole id list (cut-off tails and invalid
// bytes included).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace triptych {

class StreamDecoder {
 public:
  /// `prompt` (may be empty) is context that was decoded elsewhere: its text is never emitted. It only
  /// matters at the seam: with a prompt, generated text keeps its leading space where a decode of prompt +
  /// generated would keep it, and a character that the prompt leaves unfinished is completed by the first
  /// chunk. joined chunks == decode(prompt + generated) minus the characters that decode(prompt) had already
  /// completed; without a prompt == decode(generated). The tokenizer must outlive this object.
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {},
                         std::span<const std::int32_t> prompt = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Takes the next id; returns the text that is now certain (maybe empty).
  std::string push(std::int32_t id);
  /// End of generation: the rest, at most one U+FFFD for a cut-off character. Afterwards the decoder is as
  /// new.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace triptych
