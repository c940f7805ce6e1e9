// Who may ask: keys as "Authorization: Bearer KEY" or "x-api-key: KEY".
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace triptych::server {

class ApiKeys {
 public:
  /// A key a line; blank lines and those that begin with # are left out. Throws Error naming the file:
  /// kNotFound, kIo, kInvalidArgument when it holds no key.
  void add_file(const std::filesystem::path& path);
  void add(std::string_view key);
  /// Nobody is asked for a key.
  bool empty() const noexcept { return digests_.empty(); }
  /// Takes the same time for a wrong key as for a right one: digests are compared, each to its end.
  bool allows(std::string_view key) const;
  /// The key that a request carries; empty: none.
  static std::string_view key_of(const HttpRequest& request);

 private:
  std::vector<std::string> digests_;
};

}  // namespace triptych::server
