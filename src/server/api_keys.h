// Who may ask: keys as "Authorization: Bearer KEY" or "x-api-key: KEY", and how much each may ask for.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace triptych::server {

/// What a key may ask for; 0: as much as it likes.
struct KeyLimits {
  std::string name = {};  // for logs, in place of the key
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // of prompts and answers
  std::int64_t concurrent = 0;         // requests at once

  bool any() const noexcept { return requests_per_minute > 0 || tokens_per_minute > 0 || concurrent > 0; }
};

class ApiKeys {
 public:
  /// A key a line, and behind it any of name=, requests_per_minute=, tokens_per_minute=, concurrent=; blank
  /// lines and those that begin with # are left out. Throws Error naming file and line, but not what stands
  /// there: kNotFound, kIo, kInvalidArgument when it holds no key.
  void add_file(const std::filesystem::path& path);
  /// A key that is there already keeps its limits.
  void add(std::string_view key, KeyLimits limits = {});
  /// Nobody is asked for a key.
  bool empty() const noexcept { return keys_.empty(); }
  std::size_t size() const noexcept { return keys_.size(); }
  /// The number of a key; nothing: it is none. Takes the same time for a wrong key as for a right one:
  /// digests are compared, each to its end.
  std::optional<std::size_t> find(std::string_view key) const;
  const KeyLimits& limits(std::size_t number) const { return keys_[number].limits; }
  /// The key that a request carries; empty: none.
  static std::string_view key_of(const HttpRequest& request);

 private:
  struct Key {
    std::string digest;
    KeyLimits limits;
  };
  std::vector<Key> keys_;
};

}  // namespace triptych::server
