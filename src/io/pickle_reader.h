// A pickle as plain data. Nothing is executed: "calls" (REDUCE) and names of Python objects stay what they
// are, nodes of a tree, and it is for the user of the tree to accept the few it knows. Only the opcodes that
// state dicts need are known. Source: CPython Lib/pickletools.py (protocols 2 to 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triptych {

struct PickleNode {
  enum class Kind : std::uint8_t {
    kNone,
    kBool,       // number
    kInt,        // number
    kFloat,      // value not kept
    kText,       // text
    kTuple,      // items
    kList,       // items
    kDict,       // items: key, value, key, value, ...
    kGlobal,     // text: "module name"
    kCall,       // items: function, arguments (a tuple), then key, value, ... set on the result
    kPersistent  // items: the persistent id
  };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;
  std::string text;
  std::vector<std::uint32_t> items;  // indices of nodes
};

/// Nodes of a pickle; a node may be used in several places, and a container may even contain itself.
struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
};

/// Throws Error(kInvalidFile), or kUnsupported naming an opcode or a global that `is_allowed` does not
/// accept. At most kMaxPickle_bytes bytes.
inline constexpr std::size_t kMaxPickle_bytes = std::size_t{16} << 20;
Pickle read_pickle(std::span<const std::byte> bytes, std::string_view source,
                   bool (*is_allowed)(std::string_view global));

}  // namespace triptych
