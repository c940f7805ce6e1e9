#include "cli/chat_session.h"

namespace triptych::cli {

ChatSession::ChatSession(const api::Model& model, Options options)
    : options_(std::move(options)), engine_(model, options_.engine) {
  model.check_sampling(options_.sampling);
  reset();
}

void ChatSession::reset() {
  messages_.clear();
  media_.clear();
  pending_.clear();
  if (!options_.system.empty()) messages_.push_back(api::ChatMessage::system(options_.system));
}

api::Result ChatSession::ask(const std::string& text, const api::TokenCallback& on_token) {
  api::ChatMessage message("user");
  for (const Media& media : pending_) {
    if (const auto* video = std::get_if<api::Video>(&media)) {
      message.add_video(*video);
    } else {
      message.add_image(std::get<api::Image>(media));
    }
  }
  message.add_text(text);

  api::Request request;
  request.messages = messages_;
  request.messages.push_back(message);
  request.sampling = options_.sampling;
  request.media_options = options_.media;
  api::Result result = engine_.generate(request, on_token);

  messages_ = std::move(request.messages);
  messages_.push_back(api::ChatMessage::assistant(result.text));
  media_.insert(media_.end(), pending_.begin(), pending_.end());
  pending_.clear();
  return result;
}

std::int64_t ChatSession::save(const std::string& path) {
  return engine_.save_session(path, messages_, options_.media);
}

std::int64_t ChatSession::load(const std::string& path) {
  api::Session session = engine_.load_session(path);
  messages_ = std::move(session.messages);
  options_.media = session.media_options;
  media_.clear();
  pending_.clear();
  return session.n_cached_tokens;
}

api::Image ChatSession::picture(int media_index) const {
  const Media& media = media_.at(static_cast<std::size_t>(media_index));
  const auto* video = std::get_if<api::Video>(&media);
  return video != nullptr ? video->frame(0) : std::get<api::Image>(media);
}

}  // namespace triptych::cli
