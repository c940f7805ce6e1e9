// JSON schemas as grammars: the keywords that OpenAI's strict mode names, and those that cost no more. What
// is not supported is refused by its name and place; no keyword is ignored that says something about a value.
// docs/constrained.md lists them, and in which form documents are written.
#pragma once

#include <cstddef>
#include <string_view>

#include "grammar/grammar.h"

namespace triptych {

inline constexpr std::size_t kMaxSchemaBytes = std::size_t{1} << 19;

/// Documents of the schema. `where` stands in front of errors. Throws Error(kInvalidArgument) for what is no
/// schema or lets no document through, kUnsupported for a keyword or a use of one that is not supported, both
/// with the JSON path.
Grammar compile_json_schema(std::string_view schema, std::string_view where);

}  // namespace triptych
