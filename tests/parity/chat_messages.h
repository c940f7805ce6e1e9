// Messages for tests, in few words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/chat_template.h"

namespace triptych::test {

inline ChatMessage say(std::string role, std::vector<ContentPart> parts) {
  ChatMessage out;
  out.role = std::move(role);
  out.parts = std::move(parts);
  return out;
}

inline const ContentPart kPicture{ContentPart::Kind::kImage, ""};
inline ContentPart words(std::string text) { return {ContentPart::Kind::kText, std::move(text)}; }

}  // namespace triptych::test
