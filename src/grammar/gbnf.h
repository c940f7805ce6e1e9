// GBNF, the notation of grammars that llama.cpp documents (grammars/README.md there): rules "name ::= ..."
// of literals, character classes, groups, alternatives and repeats, the first of them named root.
#pragma once

#include <string_view>

#include "grammar/grammar.h"

namespace triptych {

/// The texts of rule root. Throws Error(kInvalidArgument) with the line for what is no grammar, a rule that
/// is missing or begins with itself; kUnsupported for tokens in a grammar. `where` stands in front.
Grammar compile_gbnf(std::string_view text, std::string_view where);

}  // namespace triptych
