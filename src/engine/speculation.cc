#include "engine/speculation.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/profile.h"
#include "engine/load.h"
#include "engine/model_runner.h"
#include "engine/self_draft.h"
#include "engine/sequence.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxLookup = 32;
// Reserved for an answer; a longer one takes memory as it grows.
constexpr std::int64_t kReservedTokens = 1024;

bool contains(std::span<const std::int32_t> ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool lies_in_a_picture(std::span<const MediaRun> runs, std::int64_t token) {
  return std::any_of(runs.begin(), runs.end(), [token](const MediaRun& run) {
    return run.first_prompt_row <= token && token < run.first_prompt_row + run.n_rows;
  });
}

}  // namespace

std::string_view to_string(SpeculationMethod method) noexcept {
  switch (method) {
    case SpeculationMethod::kNone:
      return "none";
    case SpeculationMethod::kNgram:
      return "ngram";
    case SpeculationMethod::kSelfDraft:
      return "self-draft";
  }
  return "unknown";
}

SpeculationMethod parse_speculation_method(std::string_view word) {
  for (const auto method :
       {SpeculationMethod::kNone, SpeculationMethod::kNgram, SpeculationMethod::kSelfDraft})
    if (word == to_string(method)) return method;
  fail(ErrorCode::kInvalidArgument, "speculative: expected none, ngram or self-draft, got \"{}\"", word);
}

void SpeculativeOptions::validate(int n_layers) const {
  const auto check = [](const char* field, int value, int low, int high) {
    if (value < low || value > high)
      fail(ErrorCode::kInvalidArgument, "{}: expected a number in [{}, {}], got {}", field, low, high, value);
  };
  check("num_speculative_tokens", num_speculative_tokens, 1, kMaxTokens);
  check("prompt_lookup_max", prompt_lookup_max, 1, kMaxLookup);
  check("prompt_lookup_min", prompt_lookup_min, 1, prompt_lookup_max);
  if (!skip_layers.empty()) check_skipped_layers("skip_layers", skip_layers, n_layers);
}

Speculator::Speculator(const SpeculativeOptions& options, const LoadedModel& model, ModelRunner& runner)
    : options_(options), model_(model), runner_(runner) {
  options_.validate(model.info().n_layers);
  if (options_.method != SpeculationMethod::kSelfDraft) return;
  skip_layers_ = options_.skip_layers.empty() ? model.self_draft().skipped_layers : options_.skip_layers;
  std::sort(skip_layers_.begin(), skip_layers_.end());
  const double acceptance = model.self_draft().acceptance;
  if (options_.skip_layers.empty() && acceptance > 0) shared_.first_rate = std::min(acceptance, 0.99);
  if (skip_layers_.empty())
    fail(ErrorCode::kUnsupported,
         "self-draft: nothing says which layers a draft may leave out: config.json has no self_draft "
         "(triptych convert MODEL OUT --self-draft FOLDER finds them) and no layerdrop");
}

std::unique_ptr<SequenceDraft> Speculator::start(const Sequence& s) const {
  auto out = std::make_unique<SequenceDraft>();
  const auto n_rows = static_cast<std::size_t>(options_.num_speculative_tokens) + 1;
  out->rows_.reserve(n_rows);
  out->positions_.reserve(n_rows * static_cast<std::size_t>(model_.info().n_position_axes));
  if (options_.method != SpeculationMethod::kNgram) return out;
  NgramIndex& index = out->index_.emplace(options_.prompt_lookup_min, options_.prompt_lookup_max);
  index.reserve(static_cast<std::size_t>(s.n_prompt + std::min(s.max_tokens, kReservedTokens)));
  for (std::int64_t t = 0; t < s.n_prompt; ++t)
    index.append(lies_in_a_picture(s.runs, t) ? NgramIndex::kNoToken : s.tokens[static_cast<std::size_t>(t)]);
  return out;
}

// Of a stop token the row before makes the same, and what an answer never holds need not be a row of the
// table of embeddings.
bool Speculator::may_draft(std::int32_t id) const {
  return id >= 0 && id < model_.n_usable_ids() && !contains(model_.info().never_sample, id) &&
         !contains(model_.stop_token_ids(), id);
}

int Speculator::longest(const Sequence& s, int max_tokens) const {
  const std::int64_t n_left = s.max_tokens - (s.n_tokens() - s.n_prompt);  // the last needs no row
  return static_cast<int>(std::min<std::int64_t>({max_tokens, options_.num_speculative_tokens, n_left - 1}));
}

void Speculator::add(Sequence& s, std::int32_t id) const {
  SequenceDraft& draft = *s.draft;
  const auto n_axes = static_cast<std::size_t>(model_.info().n_position_axes);
  if (draft.rows_.empty()) {
    draft.rows_.push_back(s.tokens.back());
    draft.positions_.insert(draft.positions_.end(), n_axes, s.next_position - 1);
  }
  const auto n_behind = static_cast<std::int32_t>(draft.rows_.size());
  draft.rows_.push_back(id);
  draft.positions_.insert(draft.positions_.end(), n_axes, s.next_position - 1 + n_behind);
}

void Speculator::look_up(const Candidate& candidate, int n_sequences, int& n_drafted) {
  Sequence& s = *candidate.sequence;
  SequenceDraft& draft = *s.draft;
  NgramIndex& index = *draft.index_;
  while (index.size() < s.n_tokens()) index.append(s.tokens[static_cast<std::size_t>(index.size())]);
  const int most = longest(s, candidate.max_tokens);
  if (most < 1) return;
  const NgramIndex::Match match = index.find();
  if (match.n == 0) return;
  draft.kind_ = std::min(match.n, AcceptanceRates::kKinds - 1);
  const int wanted =
      options_.gate ? draft.gate_.choose(shared_, {n_sequences, n_drafted, 0}, draft.kind_, most) : most;
  if (wanted < 1) return;
  found_.clear();
  index.continuation(match, wanted, found_);
  const auto end = std::find_if(found_.begin(), found_.end(), [&](std::int32_t id) {
    return !may_draft(id) || contains(s.sampler->params().stop_token_ids, id);
  });
  found_.erase(end, found_.end());
  found_.resize(s.sampler->n_let_through(found_));
  for (const std::int32_t id : found_) add(s, id);
  n_drafted += draft.n_tokens();
}

double Speculator::draft_share(int n_sequences) const {
  const auto plain = shared_.costs.plain_ms(n_sequences);
  const auto place = static_cast<std::size_t>(n_sequences) - 1;
  const bool measured = place < draft_token_ms_.size() && draft_token_ms_[place] > 0;
  if (plain && measured) return draft_token_ms_[place] / *plain / n_sequences;
  const auto n_layers = static_cast<double>(model_.info().n_layers);
  return (n_layers - static_cast<double>(skip_layers_.size())) / n_layers / n_sequences;
}

// One token more of each that wants so many.
bool Speculator::draft_one(std::span<const Candidate> candidates, int depth) {
  drafting_.clear();
  rows_.clear();
  const auto n_axes = static_cast<std::size_t>(model_.info().n_position_axes);
  static constexpr std::int32_t kFirst[] = {0};
  for (const Candidate& candidate : candidates) {
    Sequence& s = *candidate.sequence;
    SequenceDraft& draft = *s.draft;
    if (draft.n_wanted_ <= depth || draft.n_tokens() < depth) continue;
    SequenceRows rows = s.rows(1, model_.info().n_position_axes, kFirst);
    if (depth > 0) {
      rows.token_ids = std::span(draft.rows_).last(1);
      rows.positions = std::span(draft.positions_).last(n_axes);
      rows.first_token += depth;
      rows.first_cache_index += depth;
    }
    drafting_.push_back(&s);
    rows_.push_back(rows);
  }
  if (drafting_.empty()) return false;
  const TensorView logits = runner_.forward_draft(rows_, skip_layers_);
  const auto n_usable = static_cast<std::ptrdiff_t>(model_.n_usable_ids());
  for (std::size_t i = 0; i < drafting_.size(); ++i) {
    const float* row = logits.row(static_cast<std::int64_t>(i)).cf32();
    const auto id = static_cast<std::int32_t>(std::max_element(row, row + n_usable) - row);
    Sequence& s = *drafting_[i];
    const std::int32_t ids[] = {id};
    if (may_draft(id) && !contains(s.sampler->params().stop_token_ids, id) &&
        (!s.sampler->is_constrained() || depth > 0 || s.sampler->n_let_through(ids) == 1))
      add(s, id);
    else
      s.draft->n_wanted_ = 0;
  }
  return true;
}

void Speculator::draft_with_model(std::span<const Candidate> candidates, int n_sequences) {
  int n_wanted = 0;
  int deepest = 0;
  for (const Candidate& candidate : candidates) {
    SequenceDraft& draft = *candidate.sequence->draft;
    const int most = longest(*candidate.sequence, candidate.max_tokens);
    draft.kind_ = 0;
    draft.n_wanted_ = std::max(
        0, options_.gate
               ? draft.gate_.choose(shared_, {n_sequences, n_wanted, draft_share(n_sequences)}, 0, most)
               : most);
    n_wanted += draft.n_wanted_;
    deepest = std::max(deepest, draft.n_wanted_);
  }
  for (int depth = 0; depth < deepest; ++depth) {
    const Clock::time_point start = Clock::now();
    if (!draft_one(candidates, depth)) return;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    draft_ms_ += ms;
    const std::size_t place = drafting_.size() - 1;
    if (place >= draft_token_ms_.size()) draft_token_ms_.resize(place + 1);
    double& known = draft_token_ms_[place];
    known = known > 0 ? known + (std::clamp(ms, known / 2, known * 1.5) - known) / 4 : ms;
  }
}

void Speculator::propose(std::span<const Candidate> candidates, int n_sequences) {
  draft_ms_ = 0;
  if (candidates.empty()) return;
  const ProfileZone zone("draft");
  try {
    if (options_.method == SpeculationMethod::kSelfDraft) return draft_with_model(candidates, n_sequences);
    int n_drafted = 0;
    for (const Candidate& candidate : candidates) look_up(candidate, n_sequences, n_drafted);
  } catch (...) {  // no memory, or a fault of the model that the step itself will meet and name
    for (const Candidate& candidate : candidates) candidate.sequence->draft->clear();
  }
}

SequenceRows Speculator::rows(const Sequence& s, std::span<const std::int32_t> logit_rows) const {
  SequenceRows out = s.rows(1, model_.info().n_position_axes, logit_rows);
  out.token_ids = s.draft->rows_;
  out.positions = s.draft->positions_;
  return out;
}

void Speculator::observe_step(int n_sequences, int n_drafted, double ms) {
  shared_.costs.observe(n_sequences, n_drafted, ms);
}

void Speculator::observe_draft(Sequence& s, int n_accepted, int n_sequences, int n_drafted) {
  const int n_own = s.draft->n_tokens();
  ++counts_.n_drafts;
  counts_.n_drafted += n_own;
  counts_.n_accepted += n_accepted;
  s.result.n_drafted_tokens += n_own;
  s.result.n_accepted_tokens += n_accepted;
  double lost = n_sequences * (shared_.costs.ratio(n_sequences, n_drafted) - 1) * n_own / n_drafted;
  if (options_.method == SpeculationMethod::kSelfDraft)
    lost += n_sequences * draft_share(n_sequences) * n_own;
  s.draft->gate_.observe(shared_, s.draft->kind_, n_own, n_accepted, lost);
}

void Speculator::observe_token(Sequence& s) { s.draft->gate_.earn(shared_); }

}  // namespace triptych
