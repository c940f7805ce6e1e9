// Regular expressions as grammars: ECMAScript's syntax, of which everything that needs to look around is
// refused by name (lookaround, back references, word boundaries, anchors inside of an expression).
#pragma once

#include <functional>
#include <string_view>

#include "grammar/grammar.h"

namespace triptych {

struct RegexOptions {
  /// In front of errors, e.g. a field's name.
  std::string_view where;
  /// The pattern matches somewhere in a text, as JSON schemas mean it; else the text as a whole. ^ and $ end
  /// that at their side.
  bool searches = false;
  /// How one character of a set is written; empty: as UTF-8.
  std::function<GrammarBuilder::Node(const CharacterSet&)> characters = {};
};

/// Throws Error(kInvalidArgument) for what is no regular expression and kUnsupported for what this subset
/// lacks, both with the place.
GrammarBuilder::Node add_regex(GrammarBuilder& builder, std::string_view pattern,
                               const RegexOptions& options);

/// The texts that the pattern matches as a whole.
Grammar compile_regex(std::string_view pattern, std::string_view where);

}  // namespace triptych
