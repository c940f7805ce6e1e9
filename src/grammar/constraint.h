// Answers that have to match a grammar: which tokens may come next, so that the text stays the beginning of
// one that matches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace triptych {

/// What an answer has to be, as a whole; at most one of these. docs/constrained.md has the subsets.
struct ConstraintSpec {
  std::string json_schema = {};          // a document of this JSON schema (json_schema.h)
  std::string regex = {};                // a text that this matches (regex_grammar.h)
  std::vector<std::string> choice = {};  // one of these strings
  std::string grammar = {};              // a text of this GBNF grammar (gbnf.h)

  bool empty() const { return json_schema.empty() && regex.empty() && choice.empty() && grammar.empty(); }
  friend bool operator==(const ConstraintSpec&, const ConstraintSpec&) = default;
};

/// Throws Error(kInvalidArgument) that names the field and what is wrong, or kUnsupported that names what
/// this build cannot do.
Grammar compile_constraint(const ConstraintSpec& spec);

class ConstraintProgram;

/// Where one answer has come to. Used by one thread at a time; several may share a program.
class Constraint {
 public:
  explicit Constraint(std::shared_ptr<ConstraintProgram> program);
  ~Constraint();
  /// A copy goes its own way, to look ahead.
  Constraint(const Constraint& other);
  Constraint& operator=(const Constraint&) = delete;

  /// Sets `bits` to the tokens that may come next: id i is bit i % 32 of word i / 32; as many words as
  /// TokenMasker::n_mask_words(). Tokens that end an answer are not among them. Throws
  /// Error(kInvalidArgument) when the grammar is too ambiguous to go on.
  void mask(std::span<std::uint32_t> bits);
  /// Goes on with a token; its text is appended to `text`, which may be null. False, and nothing is changed,
  /// when it may not come next.
  bool accept(std::int32_t id, std::string* text = nullptr);
  /// The text so far is a whole one.
  bool may_end() const;
  /// And nothing can follow it.
  bool must_end() const;

 private:
  struct Generation;
  friend class ConstraintProgram;
  void refresh();

  std::shared_ptr<ConstraintProgram> program_;
  std::shared_ptr<Generation> generation_;
  GrammarAutomaton::State state_ = GrammarAutomaton::kDead;
  bool at_start_ = true;
};

/// The vocabulary that answers are made of. Thread-safe.
class TokenMasker {
 public:
  /// `tokens[id]`: its bytes, empty for one that is never allowed. `drops_first_blank`: a blank that begins
  /// the first token of an answer is not part of its text.
  /// `max_kept_bytes`: of constraints that are kept for later answers.
  TokenMasker(std::span<const std::string> tokens, bool drops_first_blank,
              std::size_t max_kept_bytes = kMaxKeptBytes);
  ~TokenMasker();

  /// An answer's start. What the constraint compiles to, and the masks met so far, are kept for others that
  /// ask for the same, the latest up to max_kept_bytes. Throws as compile_constraint.
  std::unique_ptr<Constraint> constrain(const ConstraintSpec& spec);
  std::size_t n_tokens() const noexcept { return trie_->n_tokens(); }
  std::size_t n_mask_words() const noexcept { return (n_tokens() + 31) / 32; }
  /// Without what is kept of constraints.
  std::size_t bytes() const noexcept { return trie_->bytes(); }
  std::size_t kept_bytes();

 private:
  static constexpr std::size_t kMaxKeptBytes = std::size_t{128} << 20;
  static constexpr std::size_t kMaxKeptPrograms = 64;
  std::shared_ptr<ConstraintProgram> find(const ConstraintSpec& spec);
  void keep(const ConstraintSpec& spec, std::shared_ptr<ConstraintProgram> program);
  void drop_oldest();  // mutex_ is held

  std::shared_ptr<const TokenTrie> trie_;
  bool drops_first_blank_;
  std::size_t max_kept_bytes_;
  std::mutex mutex_;
  std::list<std::pair<ConstraintSpec, std::shared_ptr<ConstraintProgram>>> programs_;  // latest first
};

}  // namespace triptych
