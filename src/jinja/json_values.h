// JSON of a request as values of the template language.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "jinja/runtime.h"

namespace triptych::jinja {

/// All text in it, keys too, gets this origin. Throws Error(kInvalidArgument) when nested too deeply.
Value value_from_json(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin);
/// Text from outside: bytes that are not UTF-8 become U+FFFD.
Value text_value(Runtime& runtime, std::string_view text, Origin origin);

}  // namespace triptych::jinja
