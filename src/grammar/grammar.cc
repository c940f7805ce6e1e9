#include "grammar/grammar.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::uint64_t kMostStates = std::uint64_t{1} << 40;  // sums of these do not overflow

std::uint64_t bounded(std::uint64_t n) { return std::min(n, kMostStates); }

}  // namespace

std::size_t Grammar::bytes() const noexcept {
  return edges_.size() * sizeof(Edge) + is_final_.size() * (1 + 2 * sizeof(std::uint32_t)) +
         rule_starts_.size() * sizeof(std::uint32_t) + sizeof(Grammar);
}

GrammarBuilder::Node GrammarBuilder::add(NodeData node, std::uint64_t n_more) {
  if (nodes_.size() + operands_.size() + text_.size() + ranges_.size() + words_.size() + n_word_bytes_ + 1 +
          n_more >
      kMaxGrammarNodes + kMaxGrammarText)
    fail(ErrorCode::kInvalidArgument, "{}: the grammar is too large, expected at most {} expressions",
         source_, kMaxGrammarNodes);
  if (nodes_.size() >= kMaxGrammarNodes)
    fail(ErrorCode::kInvalidArgument, "{}: the grammar has more than {} expressions", source_,
         kMaxGrammarNodes);
  // One at least: copies of a part that reads nothing are edges, too.
  node.n_states = std::max<std::uint64_t>(bounded(node.n_states), 1);
  nodes_.push_back(node);
  return static_cast<Node>(nodes_.size() - 1);
}

GrammarBuilder::Node GrammarBuilder::empty() { return literal({}); }

GrammarBuilder::Node GrammarBuilder::literal(std::string_view bytes) {
  const auto begin = static_cast<std::uint32_t>(text_.size());
  const Node out = add({.kind = Kind::kLiteral,
                        .begin = begin,
                        .end = begin + static_cast<std::uint32_t>(std::min(bytes.size(), kMaxGrammarText)),
                        .n_states = bytes.size()},
                       bytes.size());
  text_.append(bytes);
  return out;
}

GrammarBuilder::Node GrammarBuilder::byte_range(std::uint8_t first, std::uint8_t last) {
  return add({.kind = Kind::kBytes, .min = first, .max = last, .n_states = 1});
}

GrammarBuilder::Node GrammarBuilder::characters(const CharacterSet& set) {
  const auto ranges = set.ranges();
  std::uint64_t n_states = 1;
  std::uint64_t n_sequences = 0;
  for (const CharacterRange& range : ranges)
    for_each_utf8_sequence(range, [&](std::span<const ByteRange8> bytes) {
      n_states += bytes.size() - 1;
      ++n_sequences;
    });
  constexpr std::uint64_t kEdgesOfAState = 8;  // more count as states
  n_states += n_sequences / kEdgesOfAState;
  const auto begin = static_cast<std::uint32_t>(ranges_.size());
  const Node out = add({.kind = Kind::kCharacters,
                        .begin = begin,
                        .end = begin + static_cast<std::uint32_t>(ranges.size()),
                        .n_states = n_states},
                       ranges.size());
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  return out;
}

GrammarBuilder::Node GrammarBuilder::words(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::uint64_t n_bytes = 0;
  for (const std::string& word : words) n_bytes += word.size();
  const auto begin = static_cast<std::uint32_t>(words_.size());
  const Node out = add({.kind = Kind::kWords,
                        .begin = begin,
                        .end = begin + static_cast<std::uint32_t>(words.size()),
                        .n_states = n_bytes + 1},
                       words.size() + n_bytes);
  n_word_bytes_ += n_bytes;
  std::move(words.begin(), words.end(), std::back_inserter(words_));
  return out;
}

GrammarBuilder::Node GrammarBuilder::add_operands(Kind kind, std::span<const Node> operands) {
  std::uint64_t n_states = 1;
  for (const Node operand : operands) n_states = bounded(n_states + nodes_[operand].n_states);
  const auto begin = static_cast<std::uint32_t>(operands_.size());
  const Node out = add({.kind = kind,
                        .begin = begin,
                        .end = begin + static_cast<std::uint32_t>(operands.size()),
                        .n_states = n_states},
                       operands.size());
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  return out;
}

GrammarBuilder::Node GrammarBuilder::sequence(std::span<const Node> parts) {
  return parts.size() == 1 ? parts[0] : add_operands(Kind::kSequence, parts);
}

GrammarBuilder::Node GrammarBuilder::choice(std::span<const Node> alternatives) {
  return alternatives.size() == 1 ? alternatives[0] : add_operands(Kind::kChoice, alternatives);
}

GrammarBuilder::Node GrammarBuilder::repeat(Node node, std::uint32_t min, std::optional<std::uint32_t> max) {
  const std::uint32_t most = max.value_or(kUnlimited);
  TRIPTYCH_CHECK(min <= most, "repeat {} to {}", min, most);
  const std::uint64_t n_copies = most == kUnlimited ? std::uint64_t{min} + 1 : most;
  // A copy of a rule is one state, whatever the rule is.
  constexpr std::uint64_t kFewStates = 2;
  if (n_copies > 2 && nodes_[node].n_states > kFewStates) node = shared("a repeated part", node);
  return add({.kind = Kind::kRepeat,
              .begin = node,
              .min = min,
              .max = most,
              .n_states = bounded(nodes_[node].n_states) * std::min(n_copies, std::uint64_t{1} << 20) + 2});
}

GrammarBuilder::Rule GrammarBuilder::declare(std::string name) {
  if (rules_.size() >= kMaxGrammarRules)
    fail(ErrorCode::kInvalidArgument, "{}: the grammar has more than {} rules", source_, kMaxGrammarRules);
  rules_.push_back({.name = std::move(name)});
  return static_cast<Rule>(rules_.size() - 1);
}

void GrammarBuilder::define(Rule rule, Node node) {
  TRIPTYCH_CHECK(!rules_[rule].is_defined, "rule {} is defined twice", rules_[rule].name);
  rules_[rule].node = node;
  rules_[rule].is_defined = true;
}

GrammarBuilder::Node GrammarBuilder::call(Rule rule) {
  return add({.kind = Kind::kRule, .begin = rule, .n_states = 1});
}

GrammarBuilder::Node GrammarBuilder::shared(std::string name, Node node) {
  const Rule rule = declare(std::move(name));
  define(rule, node);
  return call(rule);
}

}  // namespace triptych
