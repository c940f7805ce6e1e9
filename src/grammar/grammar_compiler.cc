// From expressions to states: one fragment an expression (Thompson 1968), then what matching needs to know of
// the network: which states lead to an end, and how deep.
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "grammar/grammar.h"

namespace triptych {
namespace {

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

}  // namespace

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& builder) : b_(builder) {}

  Grammar compile(GrammarBuilder::Rule root) {
    check_size();
    out_.root_ = root;
    for (const auto& rule : b_.rules_) {
      out_.rule_starts_.push_back(new_state());
      out_.is_final_[emit(rule.node, out_.rule_starts_.back())] = 1;
    }
    sort_edges();
    mark_tail_calls();
    out_.needed_depth_ = depths(true);
    if (out_.needed_depth_[out_.start()] >= kMaxGrammarDepth)
      fail(ErrorCode::kInvalidArgument, "{}: no finite text matches", b_.source_);
    drop_dead_edges();
    refuse_left_recursion();
    find_classes();
    return std::move(out_);
  }

 private:
  using Edge = Grammar::Edge;
  using EdgeKind = Grammar::EdgeKind;
  using Kind = GrammarBuilder::Kind;
  struct SourcedEdge {
    std::uint32_t source;
    Edge edge;
  };

  void check_size() const {
    std::uint64_t n_states = 0;
    for (const auto& rule : b_.rules_) {
      if (!rule.is_defined)
        fail(ErrorCode::kInvalidArgument, "{}: rule {} is not defined", b_.source_, rule.name);
      n_states += b_.nodes_[rule.node].n_states + 1;
      if (n_states > kMaxGrammarStates)
        fail(ErrorCode::kInvalidArgument, "{}: the grammar needs more than {} states", b_.source_,
             kMaxGrammarStates);
    }
  }

  std::uint32_t new_state() {
    out_.is_final_.push_back(0);
    return static_cast<std::uint32_t>(out_.is_final_.size() - 1);
  }
  void add_bytes(std::uint32_t from, std::uint8_t first, std::uint8_t last, std::uint32_t to) {
    built_.push_back({from, {.target = to, .first = first, .last = last, .kind = EdgeKind::kBytes}});
  }
  void add_empty(std::uint32_t from, std::uint32_t to) {
    if (from != to) built_.push_back({from, {.target = to, .kind = EdgeKind::kEmpty}});
  }

  // What follows `from`; returns where it ends. No edge leads back to `from`, and none leaves the end yet.
  std::uint32_t emit(GrammarBuilder::Node index, std::uint32_t from) {
    const auto& node = b_.nodes_[index];
    switch (node.kind) {
      case Kind::kLiteral:
        for (std::uint32_t i = node.begin; i < node.end; ++i) {
          const auto byte = static_cast<std::uint8_t>(b_.text_[i]);
          const std::uint32_t to = new_state();
          add_bytes(from, byte, byte, to);
          from = to;
        }
        return from;
      case Kind::kBytes: {
        const std::uint32_t to = new_state();
        add_bytes(from, static_cast<std::uint8_t>(node.min), static_cast<std::uint8_t>(node.max), to);
        return to;
      }
      case Kind::kCharacters:
        return emit_characters(std::span(b_.ranges_).subspan(node.begin, node.end - node.begin), from);
      case Kind::kWords:
        return emit_words(std::span(b_.words_).subspan(node.begin, node.end - node.begin), from);
      case Kind::kSequence:
        for (std::uint32_t i = node.begin; i < node.end; ++i) from = emit(b_.operands_[i], from);
        return from;
      case Kind::kChoice: {
        const std::uint32_t to = new_state();
        for (std::uint32_t i = node.begin; i < node.end; ++i) add_empty(emit(b_.operands_[i], from), to);
        return to;
      }
      case Kind::kRepeat:
        return emit_repeat(node, from);
      case Kind::kRule: {
        const std::uint32_t to = new_state();
        built_.push_back({from, {.target = to, .rule = node.begin, .kind = EdgeKind::kRule}});
        return to;
      }
    }
    return from;
  }

  std::uint32_t emit_repeat(const GrammarBuilder::NodeData& node, std::uint32_t from) {
    for (std::uint32_t i = 0; i < node.min; ++i) from = emit(node.begin, from);
    if (node.max == GrammarBuilder::kUnlimited) {
      const std::uint32_t loop = new_state();
      add_empty(from, loop);
      add_empty(emit(node.begin, loop), loop);
      return loop;
    }
    if (node.max == node.min) return from;
    const std::uint32_t to = new_state();
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      add_empty(from, to);
      from = emit(node.begin, from);
    }
    add_empty(from, to);
    return to;
  }

  std::uint32_t emit_characters(std::span<const CharacterRange> ranges, std::uint32_t from) {
    const std::uint32_t to = new_state();
    std::map<std::tuple<std::uint8_t, std::uint8_t, std::uint32_t>, std::uint32_t> tails;
    for (const CharacterRange& range : ranges)
      for_each_utf8_sequence(range, [&](std::span<const ByteRange8> bytes) {
        std::uint32_t target = to;
        for (std::size_t i = bytes.size(); --i > 0;) {
          const auto [place, is_new] =
              tails.try_emplace({bytes[i].first, bytes[i].last, target}, std::uint32_t{0});
          if (is_new) {
            place->second = new_state();
            add_bytes(place->second, bytes[i].first, bytes[i].last, target);
          }
          target = place->second;
        }
        add_bytes(from, bytes[0].first, bytes[0].last, target);
      });
    return to;
  }

  // Sorted words: each goes on from what it has in common with the one before.
  std::uint32_t emit_words(std::span<const std::string> words, std::uint32_t from) {
    const std::uint32_t to = new_state();
    std::vector<std::uint32_t> path = {from};  // states along the word before
    std::string_view before;
    for (const std::string& word : words) {
      const auto same = static_cast<std::size_t>(
          std::mismatch(word.begin(), word.end(), before.begin(), before.end()).first - word.begin());
      path.resize(same + 1);
      for (std::size_t i = same; i < word.size(); ++i) {
        const auto byte = static_cast<std::uint8_t>(word[i]);
        const std::uint32_t next = new_state();
        add_bytes(path.back(), byte, byte, next);
        path.push_back(next);
      }
      add_empty(path.back(), to);
      before = word;
    }
    return to;
  }

  void sort_edges() {
    const std::size_t n = out_.n_states();
    out_.first_edges_.assign(n + 1, 0);
    for (const SourcedEdge& e : built_) ++out_.first_edges_[e.source + 1];
    for (std::size_t i = 0; i < n; ++i) out_.first_edges_[i + 1] += out_.first_edges_[i];
    std::vector<std::uint32_t> next(out_.first_edges_.begin(), out_.first_edges_.end() - 1);
    out_.edges_.resize(built_.size());
    for (const SourcedEdge& e : built_) out_.edges_[next[e.source]++] = e.edge;
    built_ = {};
  }

  // Sources of the edges into each state, and of the calls of each rule.
  struct Reverse {
    std::vector<std::uint32_t> first;                          // [n + 1]
    std::vector<std::pair<std::uint32_t, const Edge*>> edges;  // source, edge
  };
  template <typename KeyOf>
  Reverse reverse(std::size_t n, KeyOf key_of) const {
    Reverse out;
    out.first.assign(n + 1, 0);
    const auto for_each = [&](auto f) {
      for (std::uint32_t s = 0; s < out_.n_states(); ++s)
        for (const Edge& e : out_.edges(s))
          if (const std::uint32_t key = key_of(e); key != kNever) f(s, e, key);
    };
    for_each([&](std::uint32_t, const Edge&, std::uint32_t key) { ++out.first[key + 1]; });
    for (std::size_t i = 0; i < n; ++i) out.first[i + 1] += out.first[i];
    out.edges.resize(out.first[n]);
    std::vector<std::uint32_t> next(out.first.begin(), out.first.end() - 1);
    for_each([&](std::uint32_t s, const Edge& e, std::uint32_t key) { out.edges[next[key]++] = {s, &e}; });
    return out;
  }

  // A call is the last of its rule when from its target only the rule's end can be reached.
  void mark_tail_calls() {
    const std::size_t n = out_.n_states();
    const Reverse into =
        reverse(n, [](const Edge& e) { return e.kind == EdgeKind::kEmpty ? e.target : kNever; });
    const auto spread = [&](std::vector<std::uint8_t>& marks) {
      std::vector<std::uint32_t> todo;
      for (std::uint32_t s = 0; s < n; ++s)
        if (marks[s] != 0) todo.push_back(s);
      while (!todo.empty()) {
        const std::uint32_t s = todo.back();
        todo.pop_back();
        for (std::uint32_t i = into.first[s]; i < into.first[s + 1]; ++i)
          if (std::uint8_t& mark = marks[into.edges[i].first]; mark == 0) {
            mark = 1;
            todo.push_back(into.edges[i].first);
          }
      }
    };
    std::vector<std::uint8_t> ends = out_.is_final_;
    spread(ends);
    std::vector<std::uint8_t> goes_on(n, 0);
    for (std::uint32_t s = 0; s < n; ++s)
      for (const Edge& e : out_.edges(s))
        if (e.kind != EdgeKind::kEmpty) goes_on[s] = 1;
    spread(goes_on);
    for (Edge& e : out_.edges_)
      e.is_tail = e.kind == EdgeKind::kRule && ends[e.target] != 0 && goes_on[e.target] == 0;
  }

  // For each state the fewest rules open at once on a way to its rule's end, or kNever (Knuth 1977:
  // Dijkstra's algorithm for values that never fall along a derivation). Without bytes: along ways that read
  // nothing.
  std::vector<std::uint32_t> depths(bool with_bytes) const {
    const std::size_t n = out_.n_states();
    const Reverse into = reverse(
        n, [&](const Edge& e) { return e.kind == EdgeKind::kBytes && !with_bytes ? kNever : e.target; });
    const Reverse calls = reverse(out_.rule_starts_.size(),
                                  [](const Edge& e) { return e.kind == EdgeKind::kRule ? e.rule : kNever; });
    std::vector<std::uint32_t> rule_at(n, kNever);  // that starts here
    for (std::uint32_t r = 0; r < out_.rule_starts_.size(); ++r) rule_at[out_.rule_starts_[r]] = r;
    std::vector<std::uint32_t> depth(n, kNever);
    using Candidate = std::pair<std::uint32_t, std::uint32_t>;  // depth, state
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> todo;
    const auto offer_call = [&](std::uint32_t source, const Edge& e) {
      const std::uint32_t inside = depth[out_.rule_starts_[e.rule]];
      const std::uint32_t behind = depth[e.target];
      if (depth[source] != kNever || inside == kNever || behind == kNever) return;
      todo.emplace(std::max(inside + (e.is_tail ? 0 : 1), behind), source);
    };
    for (std::uint32_t s = 0; s < n; ++s)
      if (out_.is_final(s)) todo.emplace(0, s);
    while (!todo.empty()) {
      const auto [d, s] = todo.top();
      todo.pop();
      if (depth[s] != kNever) continue;
      depth[s] = d;
      for (std::uint32_t i = into.first[s]; i < into.first[s + 1]; ++i) {
        const auto& [source, edge] = into.edges[i];
        if (edge->kind == EdgeKind::kRule)
          offer_call(source, *edge);
        else if (depth[source] == kNever)
          todo.emplace(d, source);
      }
      if (const std::uint32_t r = rule_at[s]; r != kNever)
        for (std::uint32_t i = calls.first[r]; i < calls.first[r + 1]; ++i)
          offer_call(calls.edges[i].first, *calls.edges[i].second);
    }
    return depth;
  }

  // Edges from which no text leads to an end.
  void drop_dead_edges() {
    const auto is_dead = [&](const Edge& e) {
      return out_.needed_depth_[e.target] == kNever ||
             (e.kind == EdgeKind::kRule && out_.needed_depth_[out_.rule_starts_[e.rule]] == kNever);
    };
    std::uint32_t n_kept = 0;
    std::uint32_t begin = 0;
    for (std::uint32_t s = 0; s < out_.n_states(); ++s) {
      const std::uint32_t end = out_.first_edges_[s + 1];
      for (std::uint32_t i = begin; i < end; ++i)
        if (!is_dead(out_.edges_[i])) out_.edges_[n_kept++] = out_.edges_[i];
      begin = end;
      out_.first_edges_[s + 1] = n_kept;
    }
    out_.edges_.resize(n_kept);
  }

  // A rule that calls itself before a byte is read would be opened without end.
  void refuse_left_recursion() const {
    const std::vector<std::uint32_t> silent = depths(false);
    const std::size_t n_rules = out_.rule_starts_.size();
    std::vector<std::vector<std::uint32_t>> first_calls(n_rules);
    std::vector<std::uint32_t> seen_by(out_.n_states(), kNever);
    std::vector<std::uint32_t> todo;
    for (std::uint32_t r = 0; r < n_rules; ++r) {
      const auto visit = [&](std::uint32_t s) {
        if (std::exchange(seen_by[s], r) != r) todo.push_back(s);
      };
      visit(out_.rule_starts_[r]);
      while (!todo.empty()) {
        const std::uint32_t s = todo.back();
        todo.pop_back();
        for (const Edge& e : out_.edges(s)) {
          if (e.kind == EdgeKind::kRule) first_calls[r].push_back(e.rule);
          if (e.kind == EdgeKind::kEmpty ||
              (e.kind == EdgeKind::kRule && silent[out_.rule_starts_[e.rule]] != kNever))
            visit(e.target);
        }
      }
    }
    refuse_cycle(first_calls);
  }

  void refuse_cycle(const std::vector<std::vector<std::uint32_t>>& successors) const {
    std::vector<std::uint8_t> state(successors.size(), 0);   // 1: on the way, 2: done
    std::vector<std::pair<std::uint32_t, std::size_t>> way;  // rule, its next successor
    for (std::uint32_t root = 0; root < successors.size(); ++root) {
      if (state[root] != 0) continue;
      way.emplace_back(root, 0);
      state[root] = 1;
      while (!way.empty()) {
        auto& [rule, next] = way.back();
        if (next == successors[rule].size()) {
          state[rule] = 2;
          way.pop_back();
          continue;
        }
        const std::uint32_t to = successors[rule][next++];
        if (state[to] == 1)
          fail(ErrorCode::kInvalidArgument,
               "{}: rule {} begins with itself (left recursion); repeat with * or put the rule last",
               b_.source_, b_.rules_[to].name);
        if (state[to] == 2) continue;
        state[to] = 1;
        way.emplace_back(to, 0);
      }
    }
  }

  void find_classes() {
    std::array<bool, 257> begins{};
    for (const Edge& e : out_.edges_)
      if (e.kind == EdgeKind::kBytes) begins[e.first] = begins[std::size_t{e.last} + 1] = true;
    std::uint32_t n = 0;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte]) ++n;
      out_.class_of_[byte] = static_cast<std::uint8_t>(n);
    }
    out_.n_classes_ = n + 1;
  }

  const GrammarBuilder& b_;
  Grammar out_;
  std::vector<SourcedEdge> built_;
};

Grammar GrammarBuilder::build(Rule root) const { return GrammarCompiler(*this).compile(root); }

}  // namespace triptych
