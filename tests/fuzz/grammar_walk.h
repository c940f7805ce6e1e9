// A walk through texts of a grammar that bytes of a fuzz target made, which has to keep what grammars
// promise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "only_errors.h"

namespace triptych::fuzz {

/// Takes up to `n` bytes that are let through; `seed` chooses among them. Calls `whole` with each text that
/// may end.
template <typename Whole>
void walk(Grammar grammar, std::uint32_t seed, int n, Whole whole) {
  GrammarAutomaton automaton(std::make_shared<const Grammar>(std::move(grammar)), std::size_t{4} << 20);
  GrammarAutomaton::State state = automaton.start();
  require(state != GrammarAutomaton::kDead, "a grammar has a text");
  std::string text;
  for (int i = 0;; ++i) {
    automaton.begin_work();
    std::vector<std::uint8_t> next;
    for (int byte = 0; byte < 256; ++byte)
      if (automaton.next(state, static_cast<std::uint8_t>(byte)) != GrammarAutomaton::kDead)
        next.push_back(static_cast<std::uint8_t>(byte));
    require(next.empty() == automaton.must_end(state), "no byte follows where the text must end");
    require(!next.empty() || automaton.may_end(state), "a text that was begun can be ended");
    if (automaton.may_end(state)) whole(text);
    if (next.empty() || i == n) return;
    seed = seed * 1664525U + 1013904223U;
    const std::uint8_t byte = next[(seed >> 16) % next.size()];
    text.push_back(static_cast<char>(byte));
    state = automaton.next(state, byte);
  }
}

}  // namespace triptych::fuzz
