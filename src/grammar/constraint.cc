#include "grammar/constraint.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex_grammar.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxMaskBytes = std::size_t{16} << 20;  // of one generation

Grammar compile_choice(const std::vector<std::string>& choice) {
  constexpr std::size_t kMaxChoices = std::size_t{1} << 16;
  if (choice.size() > kMaxChoices)
    fail(ErrorCode::kInvalidArgument, "guided_choice: expected at most {} strings, got {}", kMaxChoices,
         choice.size());
  for (const std::string& text : choice) {
    if (text.empty()) fail(ErrorCode::kInvalidArgument, "guided_choice: an empty string is no answer");
    if (!utf8::is_valid(text))
      fail(ErrorCode::kInvalidArgument, "guided_choice: a string is not valid UTF-8");
  }
  GrammarBuilder builder("guided_choice");
  const GrammarBuilder::Rule root = builder.declare("root");
  builder.define(root, builder.words(choice));
  return builder.build(root);
}

}  // namespace

Grammar compile_constraint(const ConstraintSpec& spec) {
  const int n_given = (spec.json_schema.empty() ? 0 : 1) + (spec.regex.empty() ? 0 : 1) +
                      (spec.choice.empty() ? 0 : 1) + (spec.grammar.empty() ? 0 : 1);
  if (n_given != 1)
    fail(ErrorCode::kInvalidArgument,
         "expected one of guided_json, guided_regex, guided_choice and guided_grammar, got {}", n_given);
  if (!spec.choice.empty()) return compile_choice(spec.choice);
  if (!spec.regex.empty()) return compile_regex(spec.regex, "guided_regex");
  if (!spec.grammar.empty()) return compile_gbnf(spec.grammar, "guided_grammar");
  return compile_json_schema(spec.json_schema, "guided_json");
}

// An automaton as far as it has been made, and masks of its states. When it has grown large a new one begins;
// the old one goes with the last answer that still stands in it.
struct Constraint::Generation {
  explicit Generation(const std::shared_ptr<const Grammar>& grammar) : automaton(grammar) {}

  std::mutex mutex;
  GrammarAutomaton automaton;
  using Masks = std::list<std::pair<std::uint64_t, std::vector<std::uint32_t>>>;
  Masks masks;  // latest first
  std::unordered_map<std::uint64_t, Masks::iterator> by_state;
};

class ConstraintProgram {
 public:
  ConstraintProgram(Grammar compiled, std::shared_ptr<const TokenTrie> tokens, bool drops_first_blank)
      : grammar(std::make_shared<const Grammar>(std::move(compiled))),
        trie(std::move(tokens)),
        drops_blank(drops_first_blank),
        latest_(std::make_shared<Constraint::Generation>(grammar)) {}

  std::shared_ptr<Constraint::Generation> latest() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  // The one to go on in when `old` is full.
  std::shared_ptr<Constraint::Generation> after(const std::shared_ptr<Constraint::Generation>& old) {
    const std::lock_guard lock(mutex_);
    if (latest_ == old) latest_ = std::make_shared<Constraint::Generation>(grammar);
    return latest_;
  }
  std::size_t bytes() {
    const auto generation = latest();
    const std::lock_guard lock(generation->mutex);
    return grammar->bytes() + generation->automaton.bytes() +
           generation->masks.size() * ((trie->n_tokens() + 31) / 32) * sizeof(std::uint32_t);
  }

  const std::shared_ptr<const Grammar> grammar;
  const std::shared_ptr<const TokenTrie> trie;
  const bool drops_blank;

 private:
  std::mutex mutex_;
  std::shared_ptr<Constraint::Generation> latest_;
};

Constraint::Constraint(std::shared_ptr<ConstraintProgram> program)
    : program_(std::move(program)), generation_(program_->latest()), state_(generation_->automaton.start()) {}

Constraint::~Constraint() = default;
Constraint::Constraint(const Constraint& other) = default;

void Constraint::refresh() {
  const auto old = generation_;
  const std::lock_guard lock(old->mutex);
  if (!old->automaton.is_full()) return;
  const auto next = program_->after(old);
  if (next == old) return;
  const std::lock_guard lock_next(next->mutex);  // always an older one before a newer one
  next->automaton.begin_work();
  state_ = next->automaton.adopt(old->automaton, state_);
  generation_ = next;
}

void Constraint::mask(std::span<std::uint32_t> bits) {
  refresh();
  Generation& g = *generation_;
  const std::lock_guard lock(g.mutex);
  const bool drops_blank = at_start_ && program_->drops_blank;
  const std::uint64_t key = (std::uint64_t{state_} << 1) | (drops_blank ? 1U : 0U);
  if (const auto found = g.by_state.find(key); found != g.by_state.end()) {
    g.masks.splice(g.masks.begin(), g.masks, found->second);
    TRIPTYCH_CHECK(bits.size() == found->second->second.size());
    std::copy(found->second->second.begin(), found->second->second.end(), bits.begin());
    return;
  }
  std::fill(bits.begin(), bits.end(), 0U);
  g.automaton.begin_work();
  program_->trie->allow(g.automaton, state_, drops_blank, bits);
  // One that goes makes room for one that comes.
  if ((g.masks.size() + 1) * bits.size_bytes() > kMaxMaskBytes && !g.masks.empty()) {
    g.by_state.erase(g.masks.back().first);
    g.masks.splice(g.masks.begin(), g.masks, std::prev(g.masks.end()));
    g.masks.front().first = key;
    g.masks.front().second.assign(bits.begin(), bits.end());
  } else {
    g.masks.emplace_front(key, std::vector<std::uint32_t>(bits.begin(), bits.end()));
  }
  g.by_state[key] = g.masks.begin();
}

bool Constraint::accept(std::int32_t id, std::string* text) {
  if (id < 0 || static_cast<std::size_t>(id) >= program_->trie->n_tokens()) return false;
  std::string_view bytes = program_->trie->bytes_of(id);
  if (bytes.empty()) return false;
  if (at_start_ && program_->drops_blank && bytes.starts_with(' ')) bytes.remove_prefix(1);
  const std::lock_guard lock(generation_->mutex);
  generation_->automaton.begin_work();
  const GrammarAutomaton::State to = generation_->automaton.next(state_, bytes);
  if (to == GrammarAutomaton::kDead) return false;
  state_ = to;
  at_start_ = false;
  if (text != nullptr) text->append(bytes);
  return true;
}

bool Constraint::may_end() const {
  const std::lock_guard lock(generation_->mutex);
  return generation_->automaton.may_end(state_);
}

bool Constraint::must_end() const {
  const std::lock_guard lock(generation_->mutex);
  return generation_->automaton.must_end(state_);
}

TokenMasker::TokenMasker(std::span<const std::string> tokens, bool drops_first_blank,
                         std::size_t max_kept_bytes)
    : trie_(std::make_shared<const TokenTrie>(tokens)),
      drops_first_blank_(drops_first_blank),
      max_kept_bytes_(max_kept_bytes) {}

TokenMasker::~TokenMasker() = default;

std::shared_ptr<ConstraintProgram> TokenMasker::find(const ConstraintSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(programs_.begin(), programs_.end(), [&](const auto& kept) { return kept.first == spec; });
  if (found == programs_.end()) return nullptr;
  programs_.splice(programs_.begin(), programs_, found);
  drop_oldest();  // they have grown since they were kept; never the first
  return programs_.front().second;
}

void TokenMasker::keep(const ConstraintSpec& spec, std::shared_ptr<ConstraintProgram> program) {
  const std::lock_guard lock(mutex_);
  programs_.emplace_front(spec, std::move(program));
  drop_oldest();
}

std::size_t TokenMasker::kept_bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t n_bytes = 0;
  for (const auto& kept : programs_) n_bytes += kept.second->bytes();
  return n_bytes;
}

void TokenMasker::drop_oldest() {
  std::size_t n_bytes = 0;
  std::size_t n_kept = 0;
  auto it = programs_.begin();
  for (; it != programs_.end(); ++it) {
    n_bytes += it->second->bytes();
    if (++n_kept > kMaxKeptPrograms || (n_bytes > max_kept_bytes_ && n_kept > 1)) break;
  }
  programs_.erase(it, programs_.end());
}

std::unique_ptr<Constraint> TokenMasker::constrain(const ConstraintSpec& spec) {
  std::shared_ptr<ConstraintProgram> program = find(spec);
  if (!program) {
    program = std::make_shared<ConstraintProgram>(compile_constraint(spec), trie_, drops_first_blank_);
    keep(spec, program);
  }
  return std::make_unique<Constraint>(std::move(program));
}

}  // namespace triptych
