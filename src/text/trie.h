// A double-array trie over bytes: all keys that are a prefix of a text, in one pass over the text.
// Source: Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure", 1989.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

class Trie {
 public:
  using Key = std::pair<std::string_view, std::int32_t>;

  Trie() = default;
  /// Keys with values >= 0; empty keys are left out, of equal keys the last counts.
  explicit Trie(std::vector<Key> keys);

  bool empty() const noexcept { return nodes_.empty(); }

  static constexpr std::uint32_t kRoot = 0;
  /// The node behind `node` on this byte, or 0 when there is none.
  std::uint32_t child(std::uint32_t node, char byte) const noexcept {
    const std::size_t at = static_cast<std::size_t>(nodes_[node].base) + static_cast<unsigned char>(byte);
    return nodes_[node].base != 0 && at < nodes_.size() && nodes_[at].parent == node + 1
               ? static_cast<std::uint32_t>(at)
               : 0;
  }
  /// The value of the key that ends at this node, or -1.
  std::int32_t value(std::uint32_t node) const noexcept { return nodes_[node].value; }

  /// Calls visit(length, value) for each key that is a prefix of `text`, shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    if (empty()) return;
    std::uint32_t node = kRoot;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node == 0) return;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    std::uint32_t base = 0;    // children stand at base + byte; 0: no children
    std::uint32_t parent = 0;  // the parent's index plus one; 0: free
    std::int32_t value = -1;
  };
  std::vector<Node> nodes_;
};

}  // namespace triptych
