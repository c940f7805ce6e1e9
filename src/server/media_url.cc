#include "server/media_url.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/base64.h"

namespace triptych::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) { return a == lower(b); });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool is_data_url(std::string_view url) noexcept { return starts_with_word(url, "data:"); }

std::string percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) fail(ErrorCode::kInvalidArgument, "a broken %-escape");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string decode_base64_text(std::string_view text) {
  if (auto bytes = base64_decode(text)) return std::move(*bytes);
  std::string clean;  // lines, percent-coded characters, or the other alphabet
  clean.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\r' || c == '\n' || c == ' ' || c == '\t') continue;
    if (c == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      c = static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    }
    clean += c == '-' ? '+' : c == '_' ? '/' : c;
  }
  auto bytes = base64_decode(clean);
  if (!bytes) fail(ErrorCode::kInvalidArgument, "the data is not base64");
  return std::move(*bytes);
}

std::vector<std::string> parse_video_data_url(std::string_view url) {
  constexpr std::string_view kFrames = "data:video/jpeg;base64,";
  std::vector<std::string> out;
  if (!starts_with_word(url, kFrames)) {
    out.push_back(parse_data_url(url).bytes);
    return out;
  }
  url.remove_prefix(kFrames.size());
  for (;;) {
    const std::size_t comma = url.find(',');
    out.push_back(decode_base64_text(url.substr(0, comma)));
    if (out.back().empty()) fail(ErrorCode::kInvalidArgument, "frame {} of the video is empty", out.size());
    if (comma == std::string_view::npos) return out;
    url.remove_prefix(comma + 1);
  }
}

DataUrl parse_data_url(std::string_view url) {
  if (!is_data_url(url))
    fail(ErrorCode::kInvalidArgument, "expected a data URL such as data:image/png;base64,...");
  url.remove_prefix(5);
  const std::size_t comma = url.find(',');
  if (comma == std::string_view::npos || comma > 1024)
    fail(ErrorCode::kInvalidArgument, "a data URL without a comma before its data");
  std::string_view head = url.substr(0, comma);
  const std::string_view data = url.substr(comma + 1);
  constexpr std::string_view kBase64 = ";base64";
  const bool is_base64 =
      head.size() >= kBase64.size() && starts_with_word(head.substr(head.size() - kBase64.size()), kBase64);
  if (is_base64) head.remove_suffix(kBase64.size());
  DataUrl out;
  for (const char c : head.substr(0, head.find(';'))) out.media_type += lower(c);
  if (!out.media_type.empty() && out.media_type.rfind("image/", 0) != 0 &&
      out.media_type != "application/octet-stream")
    fail(ErrorCode::kUnsupported, "a data URL of the type {}, which is no picture", out.media_type);
  out.bytes = is_base64 ? decode_base64_text(data) : percent_decoded(data);
  if (out.bytes.empty()) fail(ErrorCode::kInvalidArgument, "a data URL without data");
  return out;
}

}  // namespace triptych::server
