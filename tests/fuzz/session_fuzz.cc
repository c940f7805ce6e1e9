// Arbitrary bytes as a saved session, and the same with a checksum that is right.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/session_file.h"
#include "only_errors.h"

namespace {

void check(std::span<const std::byte> bytes) {
  using namespace triptych;
  const SessionView session = parse_session(bytes, "fuzz");
  const SessionContent& content = session.content;
  fuzz::require(session.frames.size() == content.frames_bytes(), "all frames and no more");
  fuzz::require(session.pages.size() == content.n_pages() * content.model.page_bytes, "all pages");
  fuzz::require(content.positions.size() ==
                    content.tokens.size() * static_cast<std::size_t>(content.model.n_position_axes),
                "positions of all tokens");
  const ChatRequest conversation = session.conversation();
  std::size_t n_parts = 0;
  for (const ChatMessage& message : conversation.messages)
    for (const ContentPart& part : message.parts) n_parts += part.kind == ContentPart::Kind::kText ? 0 : 1;
  fuzz::require(n_parts == conversation.media.size(), "the media of the messages");
  for (std::size_t i = 0; i < n_parts; ++i)
    fuzz::require(
        conversation.media[i].frames.size() == static_cast<std::size_t>(content.frame_sizes[i].n_frames),
        "the frames of each");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  constexpr std::size_t kPrefix = 32;
  if (size >= kPrefix + sizeof(Fingerprint)) {
    std::vector<std::byte> sealed(begin, begin + size);
    const std::uint64_t n_bytes = size;
    std::memcpy(sealed.data() + 24, &n_bytes, sizeof n_bytes);
    const Fingerprint checksum = fingerprint(std::span(sealed).first(size - sizeof(Fingerprint)));
    std::memcpy(sealed.data() + size - sizeof checksum, &checksum, sizeof checksum);
    fuzz::only_errors([&] { check(sealed); });
  }
  return fuzz::only_errors([&] { check({begin, size}); });
}
