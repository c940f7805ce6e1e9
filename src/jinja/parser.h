// Tokens -> syntax tree. Source: jinja2 3.1 parser.py (behaviour, not code), with the loop controls and the
// generation block that transformers adds. Depth of the tree is bounded, so that no later walk can overflow
// the stack.
#pragma once

#include <memory>
#include <string_view>

#include "jinja/ast.h"

namespace triptych::jinja {

/// Throws Error(kInvalidFile) "name:line: ..." for a syntax error, Error(kUnsupported) for a tag that is
/// refused.
std::shared_ptr<const Program> parse_program(std::string_view source, std::string_view name);

}  // namespace triptych::jinja
