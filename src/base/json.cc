#include "base/json.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

constexpr int kMaxDepth = 256;

// "config.json" + "a" is "config.json: a", and that + "b" is "config.json: a.b".
std::string child_path(const std::string& path, std::string_view key) {
  if (path.empty()) return std::string(key);
  return fmt::format("{}{}{}", path, path.find(": ") == std::string::npos ? ": " : ".", key);
}

std::string shorten(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

Json parse(std::string_view text, std::string_view source, const Json::parser_callback_t& callback) {
  bool too_deep = false;
  // A cheap scan first: deep nesting must not reach the recursive parts of any consumer.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size() && !too_deep; ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      too_deep = ++depth > kMaxDepth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  if (too_deep) fail(ErrorCode::kInvalidFile, "{}: JSON nested deeper than {} levels", source, kMaxDepth);
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    if (const auto end = what.find("] "); end != std::string::npos) what = what.substr(end + 2);
    if (what.size() > 300) what = what.substr(0, 300) + "...";  // it quotes the last token, however long
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", source, what);
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view source) { return parse(text, source, nullptr); }

Json parse_json_unique_keys(std::string_view text, std::string_view source) {
  std::vector<std::set<std::string>> open_objects;
  return parse(text, source, [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !open_objects.back().insert(value.get<std::string>()).second)
      fail(ErrorCode::kInvalidFile, "{}: the key {} occurs twice in one object", source, shorten(value));
    return true;
  });
}

const Json& empty_json_object() {
  static const Json empty = Json::object();
  return empty;
}

bool JsonView::is_null() const noexcept { return value_->is_null(); }
bool JsonView::is_object() const noexcept { return value_->is_object(); }
bool JsonView::is_array() const noexcept { return value_->is_array(); }
bool JsonView::is_string() const noexcept { return value_->is_string(); }
bool JsonView::is_number() const noexcept { return value_->is_number(); }
bool JsonView::is_integer() const noexcept { return value_->is_number_integer(); }
bool JsonView::is_bool() const noexcept { return value_->is_boolean(); }

JsonView JsonView::at(std::string_view key) const {
  if (!is_object()) fail_expected("an object");
  const auto it = value_->find(key);
  if (it == value_->end()) fail(ErrorCode::kInvalidFile, "{}: \"{}\" is missing", path_, key);
  return JsonView(*it, child_path(path_, key));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!is_object()) fail_expected("an object");
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonView(*it, child_path(path_, key));
}

bool JsonView::has(std::string_view key) const { return find(key).has_value(); }

std::vector<JsonView> JsonView::items() const {
  if (!is_array()) fail_expected("an array");
  std::vector<JsonView> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    out.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
  return out;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!is_object()) fail_expected("an object");
  std::vector<std::pair<std::string, JsonView>> out;
  out.reserve(value_->size());
  for (const auto& [key, value] : value_->items())
    out.emplace_back(key, JsonView(value, child_path(path_, key)));
  return out;
}

std::string JsonView::as_string() const {
  if (!is_string()) fail_expected("a string");
  return value_->get<std::string>();
}

bool JsonView::as_bool() const {
  if (!is_bool()) fail_expected("true or false");
  return value_->get<bool>();
}

std::int64_t JsonView::as_int(std::int64_t min, std::int64_t max) const {
  const auto expected = [&] {
    if (min == std::numeric_limits<std::int64_t>::min() && max == std::numeric_limits<std::int64_t>::max())
      return std::string("an integer");
    if (max == std::numeric_limits<std::int64_t>::max()) return fmt::format("an integer >= {}", min);
    return fmt::format("an integer in [{}, {}]", min, max);
  };
  std::int64_t out = 0;
  if (value_->is_number_unsigned()) {
    const auto u = value_->get<std::uint64_t>();
    if (u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) fail_expected(expected());
    out = static_cast<std::int64_t>(u);
  } else if (value_->is_number_integer()) {
    out = value_->get<std::int64_t>();
  } else if (value_->is_number_float()) {
    const double d = value_->get<double>();
    if (!(std::abs(d) < 9e15) || d != std::floor(d)) fail_expected(expected());
    out = static_cast<std::int64_t>(d);
  } else {
    fail_expected(expected());
  }
  if (out < min || out > max) fail_expected(expected());
  return out;
}

double JsonView::as_double(double min, double max) const {
  const bool bounded =
      min > std::numeric_limits<double>::lowest() || max < std::numeric_limits<double>::max();
  const auto expected = [&] {
    return bounded ? fmt::format("a number in [{}, {}]", min, max) : std::string("a number");
  };
  if (!value_->is_number()) fail_expected(expected());
  const double out = value_->get<double>();
  if (!std::isfinite(out)) fail_expected("a finite number");
  if (out < min || out > max) fail_expected(expected());
  return out;
}

std::string JsonView::get_string(std::string_view key, std::string_view fallback) const {
  const auto v = find(key);
  return v ? v->as_string() : std::string(fallback);
}
bool JsonView::get_bool(std::string_view key, bool fallback) const {
  const auto v = find(key);
  return v ? v->as_bool() : fallback;
}
std::int64_t JsonView::get_int(std::string_view key, std::int64_t fallback, std::int64_t min,
                               std::int64_t max) const {
  const auto v = find(key);
  return v ? v->as_int(min, max) : fallback;
}
double JsonView::get_double(std::string_view key, double fallback, double min, double max) const {
  const auto v = find(key);
  return v ? v->as_double(min, max) : fallback;
}

void JsonView::fail_expected(std::string_view what) const {
  fail(ErrorCode::kInvalidFile, "{}: expected {}, got {}", path_, what, shorten(*value_));
}

}  // namespace triptych
