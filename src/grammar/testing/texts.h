// What tests ask of a grammar, and texts to ask about.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton.h"

namespace triptych::testing_grammar {

class Matcher {
 public:
  explicit Matcher(Grammar grammar) : automaton_(std::make_shared<const Grammar>(std::move(grammar))) {}

  bool matches(std::string_view text) {
    automaton_.begin_work();
    return automaton_.may_end(automaton_.next(automaton_.start(), text));
  }
  /// Some text that begins so matches.
  bool begins(std::string_view text) {
    automaton_.begin_work();
    return automaton_.next(automaton_.start(), text) != GrammarAutomaton::kDead;
  }
  bool must_end(std::string_view text) {
    automaton_.begin_work();
    return automaton_.must_end(automaton_.next(automaton_.start(), text));
  }
  GrammarAutomaton& automaton() { return automaton_; }

 private:
  GrammarAutomaton automaton_;
};

/// All texts of up to `n` of the letters, the empty one first, shorter before longer.
inline std::vector<std::string> all_texts(std::string_view letters, std::size_t n) {
  std::vector<std::string> out = {""};
  for (std::size_t from = 0, length = 0; length < n; ++length) {
    const std::size_t to = out.size();
    for (; from < to; ++from)
      for (const char c : letters) out.push_back(out[from] + c);
  }
  return out;
}

}  // namespace triptych::testing_grammar
