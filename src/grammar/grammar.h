// A context-free grammar over bytes. Expressions are built bottom up (literals, characters, sequences,
// choices, repeats, rules) and compiled to a network of states with three kinds of edges: a range of bytes,
// nothing, or a rule that is gone through first, as in Woods's recursive transition networks (1970).
//
// Grammars come from outside: their size is counted while they are built and refused before memory is taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/character_set.h"

namespace triptych {

/// Bounds of one grammar.
inline constexpr std::size_t kMaxGrammarNodes = std::size_t{1} << 18;   // expressions, and their operands
inline constexpr std::size_t kMaxGrammarStates = std::size_t{1} << 18;  // what they compile to
inline constexpr std::size_t kMaxGrammarRules = std::size_t{1} << 16;
inline constexpr std::size_t kMaxGrammarText = std::size_t{1} << 20;  // bytes of a source text
/// Rules that are open at once while a text is matched. A text that needs more is not in the language.
inline constexpr std::uint32_t kMaxGrammarDepth = 512;

/// What GrammarBuilder makes: states [0, n_states()), each of one rule. Immutable.
class Grammar {
 public:
  enum class EdgeKind : std::uint8_t { kBytes, kEmpty, kRule };
  struct Edge {
    std::uint32_t target = 0;
    std::uint32_t rule = 0;  // kRule: gone through before `target`
    std::uint8_t first = 0;  // kBytes: the range
    std::uint8_t last = 0;
    EdgeKind kind = EdgeKind::kEmpty;
    bool is_tail = false;  // kRule: behind the rule nothing is left of this one
  };

  std::uint32_t start() const noexcept { return rule_starts_[root_]; }
  std::uint32_t rule_start(std::uint32_t rule) const { return rule_starts_[rule]; }
  std::size_t n_states() const noexcept { return is_final_.size(); }
  std::span<const Edge> edges(std::uint32_t state) const {
    return std::span(edges_).subspan(first_edges_[state], first_edges_[state + 1] - first_edges_[state]);
  }
  /// The state's rule may end here.
  bool is_final(std::uint32_t state) const { return is_final_[state] != 0; }
  /// Fewest further rules that are open at once on some way to the rule's end. Every state that an edge leads
  /// to has such a way.
  std::uint32_t needed_depth(std::uint32_t state) const { return needed_depth_[state]; }

  /// Bytes that no edge tells apart form a class.
  std::uint8_t class_of(std::uint8_t byte) const { return class_of_[byte]; }
  std::uint32_t n_classes() const noexcept { return n_classes_; }
  std::size_t bytes() const noexcept;

 private:
  friend class GrammarCompiler;

  std::uint32_t root_ = 0;
  std::vector<std::uint32_t> rule_starts_;
  std::vector<std::uint32_t> first_edges_;  // [n_states + 1]
  std::vector<Edge> edges_;
  std::vector<std::uint8_t> is_final_;
  std::vector<std::uint32_t> needed_depth_;
  std::array<std::uint8_t, 256> class_of_{};
  std::uint32_t n_classes_ = 1;
};

/// Makes a Grammar. All members that make expressions throw Error(kInvalidArgument) when the grammar becomes
/// too large.
class GrammarBuilder {
 public:
  using Node = std::uint32_t;
  using Rule = std::uint32_t;

  /// `source` stands in front of errors.
  explicit GrammarBuilder(std::string source) : source_(std::move(source)) {}

  Node empty();
  Node nothing() { return choice(std::span<const Node>()); }
  Node literal(std::string_view bytes);
  Node byte_range(std::uint8_t first, std::uint8_t last);
  /// One character of the set, as UTF-8.
  Node characters(const CharacterSet& set);
  /// One of the strings.
  Node words(std::vector<std::string> words);
  Node sequence(std::span<const Node> parts);
  Node sequence(std::initializer_list<Node> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  Node choice(std::span<const Node> alternatives);
  Node choice(std::initializer_list<Node> of) { return choice(std::span(of.begin(), of.size())); }
  /// `max` absent: any number.
  Node repeat(Node node, std::uint32_t min, std::optional<std::uint32_t> max);
  Node optional(Node node) { return repeat(node, 0, 1); }

  /// A rule that is defined later, or is used in several places. `name` is for errors.
  Rule declare(std::string name);
  void define(Rule rule, Node node);
  bool is_defined(Rule rule) const { return rules_[rule].is_defined; }
  const std::string& name_of(Rule rule) const { return rules_[rule].name; }
  Node call(Rule rule);
  /// declare, define and call.
  Node shared(std::string name, Node node);

  /// Throws Error(kInvalidArgument) when a rule is not defined, begins with itself (which has no finite
  /// number of states) or matches no finite text, or when the network is too large.
  Grammar build(Rule root) const;

 private:
  friend class GrammarCompiler;
  enum class Kind : std::uint8_t {
    kLiteral,
    kBytes,
    kCharacters,
    kWords,
    kSequence,
    kChoice,
    kRepeat,
    kRule
  };
  static constexpr std::uint32_t kUnlimited = std::numeric_limits<std::uint32_t>::max();
  struct NodeData {
    Kind kind = Kind::kLiteral;
    std::uint32_t begin = 0;  // of its text, ranges or operands; a repeat's node; a rule
    std::uint32_t end = 0;
    std::uint32_t min = 0;
    std::uint32_t max = 0;
    std::uint64_t n_states = 0;  // that it compiles to, at most
  };
  struct RuleData {
    std::string name;
    Node node = 0;
    bool is_defined = false;
  };

  Node add(NodeData node, std::uint64_t n_more = 0);
  Node add_operands(Kind kind, std::span<const Node> operands);

  std::string source_;
  std::vector<NodeData> nodes_;
  std::vector<Node> operands_;
  std::string text_;                    // of literals
  std::vector<CharacterRange> ranges_;  // of characters
  std::vector<std::string> words_;      // sorted within a node
  std::size_t n_word_bytes_ = 0;
  std::vector<RuleData> rules_;
};

}  // namespace triptych
