// JSON on stdout: documents with a name and a version (docs/json.md, docs/schemas).
#pragma once

#include <string_view>

#include "report/json_text.h"

namespace triptych::cli {

/// {"schema": "triptych.<name>/<version>"}: every document of the program begins so. The version is raised
/// when a member goes or changes its meaning or type; members may be added.
JsonOut json_document(std::string_view name, int version = 1);
/// The same in front of the members of `content`.
JsonOut json_document(std::string_view name, const JsonOut& content, int version = 1);

/// The text of to_json_text with a newline, to stdout.
void print_json(const JsonOut& value, bool indented = true);

}  // namespace triptych::cli
