#include "text/trie.h"

#include <algorithm>

namespace triptych {
namespace {

// Keys [begin, end) of the sorted list share the first `depth` bytes, which lead to `node`.
struct Range {
  std::size_t begin;
  std::size_t end;
  std::size_t depth;
  std::uint32_t node;
};

struct Child {
  unsigned char byte;
  std::size_t begin;
  std::size_t end;
};

}  // namespace

Trie::Trie(std::vector<Key> keys) {
  std::erase_if(keys, [](const Key& key) { return key.first.empty() || key.second < 0; });
  if (keys.empty()) return;
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.first < b.first; });
  nodes_.resize(512);
  nodes_[kRoot].parent = 1;  // never free; no node has index 0 as a child
  std::vector<Range> open{{0, keys.size(), 0, kRoot}};
  std::vector<Child> children;
  std::size_t from = 1;  // below it hardly a place is free
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    std::size_t k = range.begin;
    for (; k < range.end && keys[k].first.size() == range.depth; ++k)
      nodes_[range.node].value = keys[k].second;
    children.clear();
    while (k < range.end) {
      const auto byte = static_cast<unsigned char>(keys[k].first[range.depth]);
      const std::size_t begin = k;
      while (k < range.end && static_cast<unsigned char>(keys[k].first[range.depth]) == byte) ++k;
      children.push_back({byte, begin, k});
    }
    if (children.empty()) continue;
    // The first base at which all children find a free place.
    std::size_t taken = 0;
    const std::size_t start = std::max<std::size_t>(from, children[0].byte + std::size_t{1});
    std::size_t position = start;
    for (;; ++position) {
      if (position + 257 > nodes_.size()) nodes_.resize(nodes_.size() * 2);
      if (nodes_[position].parent != 0) {
        ++taken;
        continue;
      }
      const std::size_t base = position - children[0].byte;
      const bool fits = std::all_of(children.begin(), children.end(), [&](const Child& child) {
        return base + child.byte >= nodes_.size() || nodes_[base + child.byte].parent == 0;
      });
      if (fits) {
        if (base + 257 > nodes_.size()) nodes_.resize(nodes_.size() * 2);
        nodes_[range.node].base = static_cast<std::uint32_t>(base);
        break;
      }
    }
    // Do not look again where nearly everything is taken; after a very long search give up a part of the
    // gaps, so that no set of keys makes the build quadratic.
    const std::size_t seen = position - start + 1;
    if (taken * 20 >= seen * 19)
      from = position;
    else if (seen > 4096)
      from = start + 2048;
    for (const Child& child : children) {
      const std::size_t at = nodes_[range.node].base + child.byte;
      nodes_[at].parent = range.node + 1;
      open.push_back({child.begin, child.end, range.depth + 1, static_cast<std::uint32_t>(at)});
    }
  }
  std::size_t used = nodes_.size();
  while (used > 1 && nodes_[used - 1].parent == 0) --used;
  nodes_.resize(used);
  nodes_.shrink_to_fit();
}

}  // namespace triptych
