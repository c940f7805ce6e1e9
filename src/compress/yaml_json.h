// YAML as JSON values, for files that people write: maps, lists and scalars; plain scalars become null, true
// and false, numbers or texts as YAML 1.2's core schema has it.
#pragma once

#include <string_view>

#include "base/json.h"

namespace triptych::compress {

/// One document of at most 64 KiB, 32 levels deep, without tags, anchors and keys that occur twice. Throws
/// Error(kInvalidFile) with the line.
Json parse_yaml(std::string_view text, std::string_view source);

}  // namespace triptych::compress
