// A conversation: what was said, the pictures in it, and the engine that answers.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "api/public.h"

namespace triptych::cli {

class ChatSession {
 public:
  using Media = std::variant<api::Image, api::Video>;
  struct Options {
    api::EngineOptions engine;
    api::SamplingParams sampling;
    api::MediaOptions media;
    std::string system;  // empty: none
  };

  /// Throws Error(kInvalidArgument) for options out of range.
  ChatSession(const api::Model& model, Options options);

  /// A picture or a video that goes with the next message, before its text.
  void add_media(Media media) { pending_.push_back(std::move(media)); }
  std::size_t n_pending() const noexcept { return pending_.size(); }
  /// Of the conversation, the next answer included.
  std::int64_t max_context_tokens() const noexcept { return engine_.max_context_tokens(); }

  /// Sends a user message and keeps it and the answer (as far as it came) for the next. When it throws, the
  /// conversation and the pending media are as before.
  api::Result ask(const std::string& text, const api::TokenCallback& on_token = {});

  /// The picture that a region of the last answer lies in, of a video the first frame; not of a conversation
  /// that was loaded.
  api::Image picture(int media_index) const;

  std::size_t n_messages() const noexcept { return messages_.size(); }
  /// Writes the conversation to a file, and goes on with one that was written. Both give the number of tokens
  /// of which the file holds keys and values. Throw api::Error; then the conversation is as before.
  std::int64_t save(const std::string& path);
  std::int64_t load(const std::string& path);

  /// Forgets all but the system message.
  void reset();

 private:
  Options options_;
  api::Engine engine_;
  std::vector<api::ChatMessage> messages_;
  std::vector<Media> media_;
  std::vector<Media> pending_;
};

}  // namespace triptych::cli
