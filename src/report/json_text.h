// JSON for programs: members in the order they were added, never invalid.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace triptych {

using JsonOut = nlohmann::ordered_json;

/// Text of a document: bytes that are not UTF-8 become U+FFFD, numbers that are not finite null.
std::string to_json_text(const JsonOut& value, bool indented = true);

}  // namespace triptych
