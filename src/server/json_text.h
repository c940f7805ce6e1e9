// JSON as it is sent: text that is not UTF-8 becomes U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace triptych::server {

std::string json_text(const OrderedJson& value);
/// With its quotes.
std::string json_string(std::string_view text);
/// "chatcmpl-" and 24 digits drawn at random.
std::string new_id(std::string_view prefix);
/// Seconds since 1970.
std::int64_t unix_time_s();

}  // namespace triptych::server
