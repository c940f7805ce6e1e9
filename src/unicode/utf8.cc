#include "unicode/utf8.h"

#include <algorithm>
#include <cstring>

namespace triptych::utf8 {

Step step(std::string_view bytes) noexcept {
  const auto at = [&](std::size_t k) { return static_cast<unsigned char>(bytes[k]); };
  const unsigned char b0 = at(0);
  if (b0 < 0x80) return {b0, 1, true, false};
  std::size_t need = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;  // the second byte's range: excludes overlong forms, surrogates, > U+10FFFF
  char32_t code = 0;
  if (b0 >= 0xC2 && b0 <= 0xDF) {
    need = 1;
    code = b0 & 0x1FU;
  } else if (b0 >= 0xE0 && b0 <= 0xEF) {
    need = 2;
    code = b0 & 0x0FU;
    if (b0 == 0xE0) low = 0xA0;
    if (b0 == 0xED) high = 0x9F;
  } else if (b0 >= 0xF0 && b0 <= 0xF4) {
    need = 3;
    code = b0 & 0x07U;
    if (b0 == 0xF0) low = 0x90;
    if (b0 == 0xF4) high = 0x8F;
  } else {
    return {0, 1, false, false};
  }
  for (std::size_t k = 1; k <= need; ++k) {
    if (k == bytes.size()) return {0, k, false, true};
    const unsigned char b = at(k);
    if (b < low || b > high) return {0, k, false, false};
    low = 0x80;
    high = 0xBF;
    code = (code << 6) | (b & 0x3FU);
  }
  return {code, need + 1, true, false};
}

bool is_ascii(std::string_view bytes) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) return false;
  }
  for (; i < bytes.size(); ++i)
    if ((static_cast<unsigned char>(bytes[i]) & 0x80) != 0) return false;
  return true;
}

bool is_valid(std::string_view bytes) noexcept {
  std::size_t i = 0;
  while (i < bytes.size()) {
    if (i + 8 <= bytes.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      if ((word & 0x8080808080808080ULL) == 0) {
        i += 8;
        continue;
      }
    }
    const Step s = step(bytes.substr(i));
    if (!s.valid) return false;
    i += s.length;
  }
  return true;
}

std::size_t count(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

char32_t next_bounded(std::string_view text, std::size_t& pos) noexcept {
  const auto byte = [&](std::size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) & 0x3FU : 0U;
  };
  const char32_t lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) {
    pos += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = ((lead & 0x1FU) << 6) | byte(pos + 1);
    pos = std::min(pos + 2, text.size());
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = ((lead & 0x0FU) << 12) | (byte(pos + 1) << 6) | byte(pos + 2);
    pos = std::min(pos + 3, text.size());
    return c;
  }
  const char32_t c = ((lead & 0x07U) << 18) | (byte(pos + 1) << 12) | (byte(pos + 2) << 6) | byte(pos + 3);
  pos = std::min(pos + 4, text.size());
  return c;
}

void append(std::string& out, char32_t c) {
  const auto put = [&](char32_t b) { out.push_back(static_cast<char>(static_cast<unsigned char>(b))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string from_code_point(char32_t code_point) {
  std::string out;
  append(out, code_point);
  return out;
}

std::string sanitize(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

std::string sanitize_bytewise(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Step s = step(bytes);
    const std::size_t length = s.valid ? s.length : 1;
    out.append(s.valid ? bytes.substr(0, length) : kReplacement);
    bytes.remove_prefix(length);
  }
  return out;
}

void Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined.append(bytes);
    pending_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Step s = step(bytes);
    if (s.truncated) {
      pending_.assign(bytes);
      return;
    }
    if (s.valid)
      out.append(bytes.substr(0, s.length));
    else
      out.append(kReplacement);
    bytes.remove_prefix(s.length);
  }
}

void Stream::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

}  // namespace triptych::utf8
