// Text of an answer while it comes: ordinary tokens by the tokenizer, tags (a box that is a few tokens to the
// model) by the model's family.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/load.h"
#include "text/stream_decoder.h"

namespace triptych {

class AnswerText {
 public:
  /// `plans` are the media of the prompt. Borrows both.
  AnswerText(const LoadedModel& model, std::span<const MediaPlan> plans);

  /// Takes the next id; returns the text that is now certain (maybe empty).
  std::string push(std::int32_t id);
  /// End of the answer: the rest. A tag that was not completed is text.
  std::string finish();

 private:
  const LoadedModel& model_;
  std::span<const MediaPlan> plans_;
  StreamDecoder decoder_;
  std::vector<std::int32_t> pending_;  // may become a tag
};

}  // namespace triptych
