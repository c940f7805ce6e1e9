#include "grammar/token_trie.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace triptych {

TokenTrie::TokenTrie(std::span<const std::string> tokens) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 31;
  std::size_t n_bytes = 0;
  for (const std::string& token : tokens) n_bytes += token.size();
  if (n_bytes >= kMostBytes || tokens.size() >= kMostBytes)
    fail(ErrorCode::kInvalidArgument, "the vocabulary has {} bytes in {} tokens, expected less than {}",
         n_bytes, tokens.size(), kMostBytes);
  text_.reserve(n_bytes);
  starts_.reserve(tokens.size() + 1);
  for (const std::string& token : tokens) {
    starts_.push_back(static_cast<std::uint32_t>(text_.size()));
    text_ += token;
  }
  starts_.push_back(static_cast<std::uint32_t>(text_.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (!tokens[i].empty() && tokens[i].size() <= std::numeric_limits<std::uint16_t>::max())
      ids_.push_back(static_cast<std::int32_t>(i));
  std::sort(ids_.begin(), ids_.end(), [&](std::int32_t a, std::int32_t b) {
    const int order = bytes_of(a).compare(bytes_of(b));
    return order != 0 ? order < 0 : a < b;
  });

  std::vector<std::uint32_t> path;  // the nodes of the token before
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view token = bytes_of(ids_[i]);
    const auto same = static_cast<std::size_t>(
        std::mismatch(token.begin(), token.end(), before.begin(), before.end()).first - token.begin());
    close(same);
    for (std::size_t k = same; k < token.size(); ++k) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.first_token = static_cast<std::uint32_t>(i),
                        .depth = static_cast<std::uint16_t>(k + 1),
                        .byte = static_cast<std::uint8_t>(token[k])});
    }
    max_depth_ = std::max(max_depth_, static_cast<std::uint16_t>(token.size()));
    before = token;
  }
  close(0);
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(ids_.size())});
}

std::size_t TokenTrie::bytes() const noexcept {
  return text_.size() + nodes_.size() * sizeof(Node) + (starts_.size() + ids_.size()) * sizeof(std::uint32_t);
}

void TokenTrie::allow(GrammarAutomaton& automaton, GrammarAutomaton::State state, bool drops_blank,
                      std::span<std::uint32_t> bits) const {
  TRIPTYCH_CHECK(bits.size() == (n_tokens() + 31) / 32, "a mask of {} words for {} tokens", bits.size(),
                 n_tokens());
  std::vector<GrammarAutomaton::State> states(std::size_t{max_depth_} + 1);
  states[0] = state;
  const std::size_t n = nodes_.size() - 1;
  for (std::size_t i = 0; i < n;) {
    const Node& node = nodes_[i];
    const bool is_dropped = drops_blank && node.depth == 1 && node.byte == ' ';
    const GrammarAutomaton::State to =
        is_dropped ? state : automaton.next(states[node.depth - 1U], node.byte);
    if (to == GrammarAutomaton::kDead) {
      i = node.end;
      continue;
    }
    states[node.depth] = to;
    // The tokens of a node come before those below it.
    for (std::uint32_t k = node.first_token; k < nodes_[i + 1].first_token; ++k)
      bits[static_cast<std::uint32_t>(ids_[k]) / 32U] |= 1U << (static_cast<std::uint32_t>(ids_[k]) % 32U);
    ++i;
  }
}

}  // namespace triptych
