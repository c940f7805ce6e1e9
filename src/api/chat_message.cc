#include "api/impl.h"

namespace triptych::api {
namespace {

using Kind = ContentPart::Kind;

}  // namespace

ChatMessage ChatMessage::user(const std::string& text, const std::vector<Image>& pictures) {
  ChatMessage out("user");
  for (const Image& picture : pictures) out.add_image(picture);
  out.add_text(text);
  return out;
}

ChatMessage ChatMessage::system(const std::string& text) {
  return ChatMessage(std::make_shared<const Impl>(
      Impl{.message = triptych::ChatMessage::text("system", text), .media = {}}));
}

ChatMessage ChatMessage::assistant(const std::string& text) {
  return ChatMessage(std::make_shared<const Impl>(
      Impl{.message = triptych::ChatMessage::text("assistant", text), .media = {}}));
}

ChatMessage::ChatMessage(const std::string& role) {
  auto impl = std::make_shared<Impl>();
  impl->message.role = role;
  impl_ = std::move(impl);
}

ChatMessage::ChatMessage(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
ChatMessage::ChatMessage(const ChatMessage& other) noexcept = default;
ChatMessage& ChatMessage::operator=(const ChatMessage& other) noexcept = default;
ChatMessage::~ChatMessage() = default;

// Copies may share what is held: every addition makes a new one.
ChatMessage& ChatMessage::add_text(const std::string& text) {
  auto next = std::make_shared<Impl>(*impl_);
  next->message.parts.push_back({Kind::kText, text});
  next->message.content_is_string = false;
  impl_ = std::move(next);
  return *this;
}

ChatMessage& ChatMessage::add_image(const Image& image) {
  auto next = std::make_shared<Impl>(*impl_);
  next->message.parts.push_back({Kind::kImage, ""});
  next->message.content_is_string = false;
  next->media.push_back(Access::media(image));
  impl_ = std::move(next);
  return *this;
}

ChatMessage& ChatMessage::add_video(const Video& video) {
  auto next = std::make_shared<Impl>(*impl_);
  next->message.parts.push_back({Kind::kVideo, ""});
  next->message.content_is_string = false;
  next->media.push_back(Access::media(video));
  impl_ = std::move(next);
  return *this;
}

const std::string& ChatMessage::role() const noexcept { return impl_->message.role; }

std::string ChatMessage::text() const {
  std::string out;
  for (const ContentPart& part : impl_->message.parts) out += part.text;
  return out;
}

std::size_t ChatMessage::n_media() const noexcept { return impl_->media.size(); }

}  // namespace triptych::api
