// Arbitrary text as a config.json: the parser, and every accessor of JsonView on every value.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "only_errors.h"

namespace {

using triptych::Json;
using triptych::JsonView;
using triptych::fuzz::only_errors;
using triptych::fuzz::require;

void walk(const JsonView& view) {
  only_errors([&] { view.as_string(); });
  only_errors([&] { view.as_bool(); });
  only_errors([&] { require(std::isfinite(view.as_double()), "a finite number"); });
  only_errors([&] {
    const auto n = view.as_int(1, 1024);
    require(n >= 1 && n <= 1024, "an integer in its range");
  });
  only_errors([&] { view.as_int(); });
  only_errors([&] { view.at("hidden_size"); });
  only_errors([&] { view.get_int("hidden_size", 7); });
  only_errors([&] { view.get_string("model_type", "none"); });
  only_errors([&] { view.get_double("eps", 0.5); });
  only_errors([&] { view.get_bool("flag", true); });
  if (view.is_array())
    for (const JsonView& item : view.items()) walk(item);
  if (view.is_object())
    for (const auto& [key, member] : view.members()) {
      require(view.has(key) != member.is_null(), "has() is true for what is not null");
      walk(member);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool is_unique = false;
  Json unique;
  only_errors([&] {
    unique = triptych::parse_json_unique_keys(text, "config.json");
    is_unique = true;
  });
  bool is_valid = false;
  only_errors([&] {
    const Json json = triptych::parse_json(text, "config.json");
    is_valid = true;
    if (is_unique) require(json == unique, "both parsers agree");
    walk(JsonView(json, "config.json"));
  });
  require(is_valid || !is_unique, "what the strict parser takes, the other takes too");
  return 0;
}
