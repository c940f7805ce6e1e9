#include "server/api_keys.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>

#include "base/digest.h"
#include "base/error.h"

namespace triptych::server {
namespace {

constexpr std::size_t kMaxKeys = 10'000;
constexpr std::int64_t kMaxLimit = 1'000'000'000;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::string digest_of(std::string_view key) {
  return digest_hex(std::as_bytes(std::span(key.data(), key.size())));
}

bool read_number(std::string_view text, std::int64_t& out) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, out);
  return parsed.ec == std::errc() && parsed.ptr == end && out >= 1 && out <= kMaxLimit;
}

// "NAME=VALUE"; false: it is none of them.
bool read_limit(std::string_view word, KeyLimits& out) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "name") {
    out.name = std::string(value);
    return !value.empty() && value.size() <= 64;
  }
  if (name == "requests_per_minute") return read_number(value, out.requests_per_minute);
  if (name == "tokens_per_minute") return read_number(value, out.tokens_per_minute);
  if (name == "concurrent") return read_number(value, out.concurrent);
  return false;
}

}  // namespace

void ApiKeys::add(std::string_view key, KeyLimits limits) {
  if (!find(key)) keys_.push_back({digest_of(key), std::move(limits)});
}

void ApiKeys::add_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in)
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path.string(),
         std::strerror(errno));
  const std::size_t before = keys_.size();
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') continue;
    if (keys_.size() >= kMaxKeys)
      fail(ErrorCode::kInvalidArgument, "{}: more than {} keys", path.string(), kMaxKeys);
    std::istringstream words{std::string(text)};
    std::string key, word;
    KeyLimits limits;
    words >> key;
    while (words >> word)
      if (!read_limit(word, limits))  // the word is not shown: it may be part of a key
        fail(ErrorCode::kInvalidArgument,
             "{}:{}: expected a key, then any of name=TEXT, requests_per_minute=N, tokens_per_minute=N, "
             "concurrent=N with N in 1 to {}",
             path.string(), number, kMaxLimit);
    if (find(key))
      fail(ErrorCode::kInvalidArgument, "{}:{}: the key is there already", path.string(), number);
    add(key, std::move(limits));
  }
  if (keys_.size() == before) fail(ErrorCode::kInvalidArgument, "{}: holds no key", path.string());
}

std::optional<std::size_t> ApiKeys::find(std::string_view key) const {
  const std::string digest = digest_of(key);
  std::optional<std::size_t> out;
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    const std::string& known = keys_[k].digest;
    unsigned difference = 0;
    for (std::size_t i = 0; i < known.size(); ++i) difference |= static_cast<unsigned>(known[i] ^ digest[i]);
    if (difference == 0) out = k;
  }
  return out;
}

std::string_view ApiKeys::key_of(const HttpRequest& request) {
  const std::string_view header = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (header.size() > kBearer.size()) {
    bool matches = true;
    for (std::size_t i = 0; i < kBearer.size(); ++i)
      matches = matches && (header[i] | 0x20) == (kBearer[i] | 0x20);
    if (matches) return trimmed(header.substr(kBearer.size()));
  }
  return request.header("x-api-key");
}

}  // namespace triptych::server
