// What the library says on stderr: warnings and errors, unless told otherwise. It never prints anywhere else.
#pragma once

#include "triptych/export.h"

namespace triptych::api {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Of the whole process; any thread.
TRIPTYCH_API void set_log_level(LogLevel level) noexcept;

}  // namespace triptych::api
