#include "text/byte_level.h"

#include <array>

#include "unicode/utf8.h"

namespace triptych::byte_level {
namespace {

struct Tables {
  std::array<std::array<char, 2>, 256> bytes{};
  std::array<unsigned char, 256> length{};
  std::array<int, 0x144> back{};

  Tables() {
    back.fill(-1);
    char32_t extra = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool own = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = own ? static_cast<char32_t>(b) : extra++;
      const std::string text = utf8::from_code_point(c);
      for (std::size_t k = 0; k < text.size(); ++k) bytes[b][k] = text[k];
      length[b] = static_cast<unsigned char>(text.size());
      back[c] = static_cast<int>(b);
    }
  }
};

const Tables& tables() {
  static const Tables value;
  return value;
}

}  // namespace

void append_encoded(std::string& out, std::string_view bytes) {
  const Tables& t = tables();
  const std::size_t start = out.size();
  out.resize(start + 2 * bytes.size());
  char* to = out.data() + start;
  for (const char byte : bytes) {
    const auto b = static_cast<unsigned char>(byte);
    to[0] = t.bytes[b][0];
    to[1] = t.bytes[b][1];
    to += t.length[b];
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
}

std::string_view character_of(unsigned char byte) {
  return {tables().bytes[byte].data(), tables().length[byte]};
}

int byte_of(char32_t character) noexcept {
  const Tables& t = tables();
  return character < t.back.size() ? t.back[character] : -1;
}

std::optional<std::string> decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const int b = byte_of(utf8::next(text, i));
    if (b < 0) return std::nullopt;
    out.push_back(static_cast<char>(b));
  }
  return out;
}

}  // namespace triptych::byte_level
