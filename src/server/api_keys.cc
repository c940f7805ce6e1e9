#include "server/api_keys.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "base/digest.h"
#include "base/error.h"

namespace triptych::server {
namespace {

constexpr std::size_t kMaxKeys = 10'000;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

void ApiKeys::add(std::string_view key) {
  digests_.push_back(digest_hex(std::as_bytes(std::span(key.data(), key.size()))));
}

void ApiKeys::add_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in)
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path.string(),
         std::strerror(errno));
  const std::size_t before = digests_.size();
  for (std::string line; std::getline(in, line);) {
    const std::string_view key = trimmed(line);
    if (key.empty() || key.front() == '#') continue;
    if (digests_.size() >= kMaxKeys)
      fail(ErrorCode::kInvalidArgument, "{}: more than {} keys", path.string(), kMaxKeys);
    add(key);
  }
  if (digests_.size() == before) fail(ErrorCode::kInvalidArgument, "{}: holds no key", path.string());
}

bool ApiKeys::allows(std::string_view key) const {
  const std::string digest = digest_hex(std::as_bytes(std::span(key.data(), key.size())));
  bool found = false;
  for (const std::string& known : digests_) {
    unsigned difference = 0;
    for (std::size_t i = 0; i < known.size(); ++i) difference |= static_cast<unsigned>(known[i] ^ digest[i]);
    found |= difference == 0;
  }
  return found;
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
