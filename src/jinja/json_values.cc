#include "jinja/json_values.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "unicode/utf8.h"

namespace triptych::jinja {

Value text_value(Runtime& runtime, std::string_view text, Origin origin) {
  if (utf8::is_valid(text)) return runtime.string(MarkedString(std::string(text), origin));
  return runtime.string(MarkedString(utf8::sanitize_bytewise(text), origin));
}

Value value_from_json(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin) {
  using Kind = nlohmann::ordered_json::value_t;
  const DepthGuard guard(runtime.budget());
  runtime.budget().charge(1);
  switch (json.type()) {
    case Kind::boolean:
      return Value::boolean(json.get<bool>());
    case Kind::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Kind::number_unsigned: {
      const auto n = json.get<std::uint64_t>();
      if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Value::number(static_cast<double>(n));
      return Value::integer(static_cast<std::int64_t>(n));
    }
    case Kind::number_float:
      return Value::number(json.get<double>());
    case Kind::string:
      return text_value(runtime, json.get_ref<const std::string&>(), origin);
    case Kind::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(value_from_json(runtime, item, origin));
      return runtime.list(std::move(items));
    }
    case Kind::object: {
      auto out = std::make_shared<DictObject>();
      for (const auto& [key, value] : json.items())
        runtime.dict_set(*out, text_value(runtime, key, origin), value_from_json(runtime, value, origin));
      return runtime.dict(std::move(out));
    }
    default:
      return Value::none();
  }
}

}  // namespace triptych::jinja
