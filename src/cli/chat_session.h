// A conversation: what was said, the pictures in it, and the engine that answers.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load.h"

namespace triptych::cli {

class ChatSession {
 public:
  struct Options {
    EngineOptions engine;
    SamplingParams sampling;
    MediaOptions media;
    std::string system;  // empty: none
  };

  /// Borrows the model.
  ChatSession(LoadedModel& model, Options options);

  /// A picture or a video that goes with the next message, before its text.
  void add_media(MediaInput media) { pending_.push_back(std::move(media)); }
  std::size_t n_pending() const noexcept { return pending_.size(); }

  /// Sends a user message and keeps it and the answer (as far as it came) for the next. When it throws, the
  /// conversation and the pending media are as before.
  GenerationResult ask(const std::string& text, TokenCallback on_token = {});

  /// The picture that a region of the last answer lies in.
  const Image& picture(int media_index) const {
    return media_.at(static_cast<std::size_t>(media_index)).frames.front();
  }

  /// Forgets all but the system message.
  void reset();

 private:
  LoadedModel& model_;
  Options options_;
  Engine engine_;
  std::vector<ChatMessage> messages_;
  std::vector<MediaInput> media_;
  std::vector<MediaInput> pending_;
};

}  // namespace triptych::cli
