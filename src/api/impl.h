// What stands behind the classes of include/triptych/. A class of triptych::api holds a pointer to one of
// these; inside namespace api a bare name is the public class, triptych::Name the inner one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/public.h"
#include "engine/load.h"
#include "engine/video_file.h"

namespace triptych::api {

// Pictures and videos are kept as the engine takes them. Messages share them; a request copies the pixels.
struct Image::Impl {
  MediaInput media;  // one frame
};

struct Video::Impl {
  MediaInput media;
};

struct VideoFile::Impl {
  triptych::VideoFile file;
};

struct ChatMessage::Impl {
  triptych::ChatMessage message;
  std::vector<std::shared_ptr<const MediaInput>> media;  // of its parts that are no text, in order
};

struct Model::Impl {
  std::unique_ptr<LoadedModel> model;
  SamplingParams default_sampling;
};

/// The way from a public object to what it holds.
struct Access {
  /// `decode_ms`: that it took to read and decode it.
  static Image make_image(triptych::Image image, double decode_ms = 0);
  static Video make_video(MediaInput media);
  static std::shared_ptr<const MediaInput> media(const Image& image) {
    return {image.impl_, &image.impl_->media};
  }
  static std::shared_ptr<const MediaInput> media(const Video& video) {
    return {video.impl_, &video.impl_->media};
  }
  static const ChatMessage::Impl& message(const ChatMessage& message) { return *message.impl_; }
  static ChatMessage make_message(triptych::ChatMessage message,
                                  std::vector<std::shared_ptr<const MediaInput>> media) {
    return ChatMessage(std::make_shared<const ChatMessage::Impl>(
        ChatMessage::Impl{.message = std::move(message), .media = std::move(media)}));
  }
  static LoadedModel& model(const Model& model) { return *model.impl_->model; }
};

}  // namespace triptych::api
