// JSON on stdout.
#pragma once

#include "report/json_text.h"

namespace triptych::cli {

/// The text of to_json_text with a newline, to stdout.
void print_json(const JsonOut& value, bool indented = true);

}  // namespace triptych::cli
