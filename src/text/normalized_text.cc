#include "text/normalized_text.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {
namespace {

// No published normalizer expands more than NFKD (elevenfold for U+FDFA) then ByteLevel (twofold).
constexpr std::size_t kMaxExpansion = 64;
constexpr std::size_t kExpansionSlack = 4096;

}  // namespace

NormalizedText NormalizedText::of(std::string_view text, std::size_t offset, bool tracked) {
  NormalizedText out;
  out.text = text;
  out.tracked = tracked;
  out.max_bytes = kMaxExpansion * text.size() + kExpansionSlack;
  if (tracked) {
    out.origin.resize(text.size());
    std::size_t start = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      // All bytes of a character share its first byte's position.
      if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) start = i;
      out.origin[i] = static_cast<std::uint32_t>(offset + start);
    }
  }
  return out;
}

void NormalizedBuilder::keep(std::size_t begin, std::size_t end) {
  text_.append(target_.text, begin, end - begin);
  if (target_.tracked)
    origin_.insert(origin_.end(), target_.origin.begin() + static_cast<std::ptrdiff_t>(begin),
                   target_.origin.begin() + static_cast<std::ptrdiff_t>(end));
}

void NormalizedBuilder::insert(std::string_view bytes, std::size_t at) {
  if (text_.size() + bytes.size() > target_.max_bytes)
    fail(ErrorCode::kInvalidFile, "the normalizer makes the text more than {} times longer", kMaxExpansion);
  text_.append(bytes);
  if (!target_.tracked) return;
  const std::uint32_t from =
      target_.origin.empty() ? 0 : target_.origin[std::min(at, target_.origin.size() - 1)];
  origin_.insert(origin_.end(), bytes.size(), from);
}

void NormalizedBuilder::finish() {
  target_.text = std::move(text_);
  target_.origin = std::move(origin_);
}

}  // namespace triptych
