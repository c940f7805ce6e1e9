// Log lines with fields, for programs that read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"

namespace triptych {

enum class LogFormat {
  kText,  // "warning: MESSAGE name=value"
  kJson,  // {"time": "2026-01-31T12:00:00.123Z", "level": "warning", "message": ..., "name": value}, a line
          // each
};
/// Of all lines from here on.
void set_log_format(LogFormat format) noexcept;

using LogValue = std::variant<std::int64_t, double, std::string>;
using LogFields = std::vector<std::pair<std::string, LogValue>>;
/// Written whatever log_level() is: who calls it was asked for it. A line stays a line whatever the values
/// hold.
void log_event(LogLevel level, std::string_view message, const LogFields& fields);

}  // namespace triptych
