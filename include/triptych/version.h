// The version of the headers, and that of the library in use.
#pragma once

#include <string_view>

#include "triptych/export.h"

/// Semantic versioning. Before 1.0 a new minor version may change the binary interface; the SONAME
/// (libtriptych.so.0) changes with it.
#define TRIPTYCH_VERSION_MAJOR 0
#define TRIPTYCH_VERSION_MINOR 1
#define TRIPTYCH_VERSION_PATCH 0

namespace triptych::api {

/// Of the library that was loaded, e.g. "0.1.0". Any thread.
TRIPTYCH_API std::string_view version() noexcept;
/// The revision it was built from (`git describe`), "unknown" outside a git checkout. Any thread.
TRIPTYCH_API std::string_view revision() noexcept;

}  // namespace triptych::api
