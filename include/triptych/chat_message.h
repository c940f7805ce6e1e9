// What is said in a conversation.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "triptych/export.h"
#include "triptych/image.h"
#include "triptych/video.h"

namespace triptych::api {

/// A message: who speaks, and texts, pictures and videos in their order. Text is UTF-8 and never read as
/// control tokens. Copies share what they hold; one object is used by one thread at a time, copies by any.
class TRIPTYCH_API ChatMessage {
 public:
  /// Pictures before the text, as most models are trained.
  static ChatMessage user(const std::string& text, const std::vector<Image>& pictures = {});
  static ChatMessage system(const std::string& text);
  static ChatMessage assistant(const std::string& text);

  /// An empty message of "user", "system", "assistant" or another role that the model's chat template knows.
  explicit ChatMessage(const std::string& role);
  ChatMessage(const ChatMessage& other) noexcept;
  ChatMessage& operator=(const ChatMessage& other) noexcept;
  ~ChatMessage();

  ChatMessage& add_text(const std::string& text);
  ChatMessage& add_image(const Image& image);
  ChatMessage& add_video(const Video& video);

  const std::string& role() const noexcept;
  /// All texts, one after another.
  std::string text() const;
  /// Pictures and videos.
  std::size_t n_media() const noexcept;

 private:
  struct Impl;
  friend struct Access;
  explicit ChatMessage(std::shared_ptr<const Impl> impl) noexcept;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace triptych::api
