// The bytes of a vocabulary's tokens as a tree, so that a walk that allows tokens looks at a beginning that
// many share once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/automaton.h"

namespace triptych {

/// Immutable.
class TokenTrie {
 public:
  /// `tokens[id]` are the bytes of a token, empty where it has none: such a token is never allowed. Nor is
  /// one of more than 65535 bytes. Throws Error(kInvalidArgument) when all together have 2^31 bytes or more.
  explicit TokenTrie(std::span<const std::string> tokens);

  std::size_t n_tokens() const noexcept { return starts_.size() - 1; }
  std::string_view bytes_of(std::int32_t id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(text_).substr(starts_[i], starts_[i + 1] - starts_[i]);
  }
  /// Sets the bits of the tokens that may stand at `state`: id i is bit i % 32 of word i / 32. `bits`
  /// [(n_tokens + 31) / 32] are 0 before. `drops_blank`: a token's first byte does not count where it is a
  /// blank. Throws as GrammarAutomaton::next.
  void allow(GrammarAutomaton& automaton, GrammarAutomaton::State state, bool drops_blank,
             std::span<std::uint32_t> bits) const;
  std::size_t bytes() const noexcept;

 private:
  struct Node {
    std::uint32_t end = 0;          // the node behind those below this one
    std::uint32_t first_token = 0;  // of ids_, up to the next node's
    std::uint16_t depth = 0;        // bytes up to and with this node's
    std::uint8_t byte = 0;
  };

  std::string text_;
  std::vector<std::uint32_t> starts_;  // [n_tokens + 1]
  std::vector<std::int32_t> ids_;      // by bytes
  std::vector<Node> nodes_;            // in the order of the walk, and one behind them
  std::uint16_t max_depth_ = 0;
};

}  // namespace triptych
