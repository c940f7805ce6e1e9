// UTF-8 in bytes from anywhere: validity, decoding, and replacing what is not valid. Unless a function says
// otherwise each maximal part of an ill-formed sequence becomes one U+FFFD, as Unicode 3.9 recommends and as
// the reference's decoder does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace triptych::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// What stands at the start of `bytes` (not empty).
struct Step {
  char32_t code_point = 0;  // meaningful when valid
  std::size_t length = 1;   // bytes of the character, or of the maximal ill-formed part
  bool valid = false;
  bool truncated = false;  // not valid yet, but more bytes could make it so
};
Step step(std::string_view bytes) noexcept;

/// The character at text[i] of valid UTF-8; moves i behind it.
inline char32_t next(std::string_view text, std::size_t& i) noexcept {
  const auto byte = [&](std::size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[k])); };
  const char32_t b0 = byte(i);
  if (b0 < 0x80) {
    i += 1;
    return b0;
  }
  if (b0 < 0xE0) {
    const char32_t c = ((b0 & 0x1F) << 6) | (byte(i + 1) & 0x3F);
    i += 2;
    return c;
  }
  if (b0 < 0xF0) {
    const char32_t c = ((b0 & 0x0F) << 12) | ((byte(i + 1) & 0x3F) << 6) | (byte(i + 2) & 0x3F);
    i += 3;
    return c;
  }
  const char32_t c =
      ((b0 & 0x07) << 18) | ((byte(i + 1) & 0x3F) << 12) | ((byte(i + 2) & 0x3F) << 6) | (byte(i + 3) & 0x3F);
  i += 4;
  return c;
}

/// The same for a view that may end within a character.
char32_t next_bounded(std::string_view text, std::size_t& i) noexcept;

/// Length of the character that starts with this byte of valid UTF-8.
inline std::size_t length_of(char lead) noexcept {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/// Start of the character that ends before text[end] of valid UTF-8; end > 0.
inline std::size_t previous(std::string_view text, std::size_t end) noexcept {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

/// Characters of valid UTF-8.
std::size_t count(std::string_view text) noexcept;
bool is_valid(std::string_view bytes) noexcept;
bool is_ascii(std::string_view bytes) noexcept;
void append(std::string& out, char32_t code_point);
std::string from_code_point(char32_t code_point);

/// Replaces what is not valid.
std::string sanitize(std::string_view bytes);
/// Replaces every byte that belongs to no valid character by one U+FFFD.
std::string sanitize_bytewise(std::string_view bytes);

/// The same for bytes that arrive in parts: joined output == sanitize(joined input).
class Stream {
 public:
  /// Appends to `out` all that is certain.
  void push(std::string_view bytes, std::string& out);
  /// An unfinished character at the end becomes one U+FFFD.
  void finish(std::string& out);

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace triptych::utf8
