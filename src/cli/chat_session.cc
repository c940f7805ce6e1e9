#include "cli/chat_session.h"

namespace triptych::cli {

ChatSession::ChatSession(LoadedModel& model, Options options)
    : model_(model), options_(std::move(options)), engine_(model, options_.engine) {
  options_.sampling.validate(model.info().vocab_size);
  reset();
}

void ChatSession::reset() {
  messages_.clear();
  media_.clear();
  pending_.clear();
  if (!options_.system.empty()) messages_.push_back(ChatMessage::text("system", options_.system));
}

GenerationResult ChatSession::ask(const std::string& text, TokenCallback on_token) {
  ChatMessage message;
  message.role = "user";
  for (std::size_t i = 0; i < pending_.size(); ++i) message.parts.push_back({ContentPart::Kind::kImage, ""});
  message.parts.push_back({ContentPart::Kind::kText, text});

  ChatRequest request;
  request.messages = messages_;
  request.messages.push_back(message);
  request.media = media_;
  for (const Image& picture : pending_)
    request.media.push_back({.frames = {picture}, .is_video = false, .frames_per_s = 0});
  request.media_options = options_.media;
  GenerationResult result = engine_.generate(model_.prepare(request), options_.sampling, std::move(on_token));

  messages_ = std::move(request.messages);
  messages_.push_back(ChatMessage::text("assistant", result.text));
  media_ = std::move(request.media);
  pending_.clear();
  return result;
}

}  // namespace triptych::cli
