#include "cli/chat_session.h"

namespace triptych::cli {

namespace {

// Every turn repeats the conversation so far: its keys and values, and what the tower made of its pictures,
// are kept.
EngineOptions with_memory(EngineOptions options) {
  options.max_kept_sequences = 1;
  options.visual_cache_bytes = std::size_t{256} << 20;
  return options;
}

}  // namespace

ChatSession::ChatSession(LoadedModel& model, Options options)
    : model_(model), options_(std::move(options)), engine_(model, with_memory(options_.engine)) {
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
  for (const MediaInput& media : pending_)
    message.parts.push_back({media.is_video ? ContentPart::Kind::kVideo : ContentPart::Kind::kImage, ""});
  message.parts.push_back({ContentPart::Kind::kText, text});

  ChatRequest request;
  request.messages = messages_;
  request.messages.push_back(message);
  request.media = media_;
  request.media.insert(request.media.end(), pending_.begin(), pending_.end());
  request.media_options = options_.media;
  GenerationResult result = engine_.generate(model_.prepare(request), options_.sampling, std::move(on_token));

  messages_ = std::move(request.messages);
  messages_.push_back(ChatMessage::text("assistant", result.text));
  media_ = std::move(request.media);
  pending_.clear();
  return result;
}

}  // namespace triptych::cli
