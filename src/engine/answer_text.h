// Text of an answer while it comes: ordinary tokens by the tokenizer, tags (a box that is a few tokens to the
// model) by the model's family.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/load.h"
#include "text/stream_decoder.h"
#include "unicode/utf8.h"

namespace triptych {

class AnswerText {
 public:
  /// `plans` are the media of the prompt. Borrows both.
  AnswerText(const LoadedModel& model, std::span<const MediaPlan> plans);

  /// Takes the next id; returns the text that is now certain (maybe empty).
  std::string push(std::int32_t id);
  /// The same for a token of which these are the bytes. An answer takes all its tokens by the one or the
  /// other.
  std::string push_bytes(std::string_view bytes);
  /// End of the answer: the rest. A tag that was not completed is text.
  std::string finish();

 private:
  const LoadedModel& model_;
  std::span<const MediaPlan> plans_;
  StreamDecoder decoder_;
  std::vector<std::int32_t> pending_;  // may become a tag
  utf8::Stream bytes_;
};

}  // namespace triptych
