#include "engine/answer_text.h"

namespace triptych {

AnswerText::AnswerText(const LoadedModel& model, std::span<const MediaPlan> plans)
    : model_(model), plans_(plans), decoder_(model.tokenizer(), model.answer_decoding()) {}

std::string AnswerText::push(std::int32_t id) {
  std::string out;
  pending_.push_back(id);
  while (!pending_.empty()) {
    const AnswerTag tag = model_.model().read_answer_tag(pending_, plans_);
    if (tag.undecided) break;
    if (tag.n_ids == 0) {
      out += decoder_.push(pending_.front());
      pending_.erase(pending_.begin());
      continue;
    }
    out += decoder_.finish() + tag.text;
    const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(tag.n_ids);
    // What follows does not begin the text: its blank stays.
    decoder_ = StreamDecoder(model_.tokenizer(), model_.answer_decoding(), {pending_.begin(), end});
    pending_.erase(pending_.begin(), end);
  }
  return out;
}

std::string AnswerText::push_bytes(std::string_view bytes) {
  std::string out;
  bytes_.push(bytes, out);
  return out;
}

std::string AnswerText::finish() {
  std::string out;
  bytes_.finish(out);
  for (const std::int32_t id : pending_) out += decoder_.push(id);
  pending_.clear();
  return out + decoder_.finish();
}

}  // namespace triptych
