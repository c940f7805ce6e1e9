// JSON with errors that say where. JsonView walks a parsed document and remembers its path, so that a wrong
// field is reported as "config.json: vision_config.patch_size: expected an integer in [1, 1024], got \"14\"".
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace triptych {

/// Declared only: nlohmann/json.hpp is the largest part of what an object that sees it costs to compile, so
/// sources that look into a value include it themselves, and headers hold values behind a shared_ptr.
using Json = nlohmann::json;
/// Keeps the order of an object's members.
using OrderedJson = nlohmann::ordered_json;

/// Parses a document. `source` (a file name) goes into errors. Depth is limited to 256, so that no later walk
/// overflows. Throws Error(kInvalidFile) with line and column.
Json parse_json(std::string_view text, std::string_view source);

/// The same, but an object that has a key twice is an error too: for formats where the second one could hide
/// the first.
Json parse_json_unique_keys(std::string_view text, std::string_view source);

/// For a JsonView of a part that a document leaves out.
const Json& empty_json_object();

/// A borrowed value and the path that led to it. The document must outlive it.
class JsonView {
 public:
  JsonView(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& raw() const noexcept { return *value_; }
  const std::string& path() const noexcept { return path_; }

  bool is_null() const noexcept;
  bool is_object() const noexcept;
  bool is_array() const noexcept;
  bool is_string() const noexcept;
  bool is_number() const noexcept;
  bool is_integer() const noexcept;
  bool is_bool() const noexcept;

  /// Member that must exist. Throws Error(kInvalidFile) when this is no object or the key is missing.
  JsonView at(std::string_view key) const;
  /// Member, or nothing when missing or null. Throws when this is no object.
  std::optional<JsonView> find(std::string_view key) const;
  /// True when the key is present and not null.
  bool has(std::string_view key) const;
  /// Elements of an array; throws when this is none.
  std::vector<JsonView> items() const;
  /// Members of an object in file order is not kept: sorted by key. Throws when this is no object.
  std::vector<std::pair<std::string, JsonView>> members() const;

  std::string as_string() const;
  bool as_bool() const;
  /// Integer in [min, max]; a float with an integral value is accepted.
  std::int64_t as_int(std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  /// Finite number, in [min, max].
  double as_double(double min = std::numeric_limits<double>::lowest(),
                   double max = std::numeric_limits<double>::max()) const;

  std::string get_string(std::string_view key, std::string_view fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;
  std::int64_t get_int(std::string_view key, std::int64_t fallback,
                       std::int64_t min = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  double get_double(std::string_view key, double fallback, double min = std::numeric_limits<double>::lowest(),
                    double max = std::numeric_limits<double>::max()) const;

  /// Throws Error(kInvalidFile): "path: expected <what>, got <value>".
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  const Json* value_;
  std::string path_;
};

}  // namespace triptych
