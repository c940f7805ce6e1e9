#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kMaxChoices = 128;

void check_range(const char* field, double value, double low, double high, bool open_low = false) {
  if (std::isfinite(value) && value <= high && (open_low ? value > low : value >= low)) return;
  fail(ErrorCode::kInvalidArgument, "{}: expected a number in {}{}, {}], got {}", field, open_low ? '(' : '[',
       low, high, value);
}

void check_id(const char* field, std::int32_t id, std::int64_t vocab_size) {
  if (id < 0 || id >= vocab_size)
    fail(ErrorCode::kInvalidArgument, "{}: token id {} is outside [0, {})", field, id, vocab_size);
}

double log_sum_exp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(top)) return static_cast<double>(top);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - top));
  return static_cast<double>(top) + std::log(sum);
}

// Higher logit first; the lower id on a tie, as argmax gives.
bool better(const std::pair<float, std::int32_t>& a, const std::pair<float, std::int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// Candidates to probabilities that sum to 1, in place.
void softmax(std::vector<std::pair<float, std::int32_t>>& candidates) {
  float top = kMinusInfinity;
  for (const auto& c : candidates) top = std::max(top, c.first);
  double sum = 0;
  for (auto& c : candidates) {
    c.first = std::exp(c.first - top);
    sum += static_cast<double>(c.first);
  }
  for (auto& c : candidates) c.first = static_cast<float>(static_cast<double>(c.first) / sum);
}

// The filters below take sorted probabilities, best first, keep at least one and leave the kept ones as they
// are.
void keep_top_p(std::vector<std::pair<float, std::int32_t>>& candidates, float top_p) {
  double sum = 0;
  std::size_t n = 0;
  while (n < candidates.size()) {
    sum += static_cast<double>(candidates[n].first);
    ++n;
    if (sum >= static_cast<double>(top_p)) break;
  }
  candidates.resize(std::max<std::size_t>(n, 1));
}

void keep_typical(std::vector<std::pair<float, std::int32_t>>& candidates, float mass) {
  double entropy = 0;
  for (const auto& c : candidates)
    if (c.first > 0) entropy -= static_cast<double>(c.first) * std::log(static_cast<double>(c.first));
  const auto distance = [&](float p) {
    return p > 0 ? std::abs(-std::log(static_cast<double>(p)) - entropy)
                 : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
  keep_top_p(candidates, mass);
  std::stable_sort(candidates.begin(), candidates.end(), better);
}

// The last token that max_length allows may come before a constrained text is whole: then it is cut.
LogitsProcessorParams without_forced_end(LogitsProcessorParams params, bool is_constrained) {
  if (is_constrained) params.forced_eos_token_id.clear();
  return params;
}

void renormalize(std::vector<std::pair<float, std::int32_t>>& candidates) {
  double sum = 0;
  for (const auto& c : candidates) sum += static_cast<double>(c.first);
  for (auto& c : candidates) c.first = static_cast<float>(static_cast<double>(c.first) / sum);
}

}  // namespace

void SamplingParams::validate(std::int64_t vocab_size) const {
  check_range("temperature", static_cast<double>(temperature), 0, 100);
  if (top_k < -1) fail(ErrorCode::kInvalidArgument, "top_k: expected -1, 0 (all) or more, got {}", top_k);
  check_range("top_p", static_cast<double>(top_p), 0, 1, true);
  check_range("min_p", static_cast<double>(min_p), 0, 1);
  check_range("typical_p", static_cast<double>(typical_p), 0, 1, true);
  check_range("repetition_penalty", static_cast<double>(repetition_penalty), 0, 10, true);
  check_range("frequency_penalty", static_cast<double>(frequency_penalty), -2, 2);
  check_range("presence_penalty", static_cast<double>(presence_penalty), -2, 2);
  if (logit_bias.size() > 4096)
    fail(ErrorCode::kInvalidArgument, "logit_bias: expected at most 4096 entries, got {}", logit_bias.size());
  for (const auto& [id, bias] : logit_bias) {
    check_id("logit_bias", id, vocab_size);
    check_range("logit_bias", static_cast<double>(bias), -100, 100);
  }
  if (max_tokens < 0) fail(ErrorCode::kInvalidArgument, "max_tokens: expected 0 or more, got {}", max_tokens);
  if (stop.size() > 64)
    fail(ErrorCode::kInvalidArgument, "stop: expected at most 64 strings, got {}", stop.size());
  for (const std::string& s : stop) {
    if (s.empty()) fail(ErrorCode::kInvalidArgument, "stop: an empty string cannot end an answer");
    if (s.size() > 4096)
      fail(ErrorCode::kInvalidArgument, "stop: expected strings of at most 4096 bytes, got {}", s.size());
    if (!utf8::is_valid(s)) fail(ErrorCode::kInvalidArgument, "stop: a string is not valid UTF-8");
  }
  for (const std::int32_t id : stop_token_ids) check_id("stop_token_ids", id, vocab_size);
  processors.validate(vocab_size);
  if (n_logprobs < -1 || n_logprobs > 100)
    fail(ErrorCode::kInvalidArgument, "logprobs: expected a number in [0, 100], got {}", n_logprobs);
  if (n < 1 || n > kMaxChoices)
    fail(ErrorCode::kInvalidArgument, "n: expected a number in [1, {}], got {}", kMaxChoices, n);
  if (best_of != 0 && (best_of < n || best_of > kMaxChoices))
    fail(ErrorCode::kInvalidArgument, "best_of: expected 0 (n) or a number in [n, {}], got {} with n {}",
         kMaxChoices, best_of, n);
}

std::int64_t SamplingParams::max_answer_tokens(std::int64_t n_prompt, std::int64_t room) const {
  if (max_tokens > 0) return std::min(max_tokens, room);
  if (processors.max_length == 0) return room;
  if (processors.max_length <= n_prompt)
    fail(ErrorCode::kContextLength,
         "the prompt has {} tokens and max_length of generation_config.json allows {}, the answer included; "
         "max_tokens "
         "overrides it",
         n_prompt, processors.max_length);
  return std::min(processors.max_length - n_prompt, room);
}

Sampler::Sampler(SamplingParams params, std::uint64_t seed, std::int64_t n_usable,
                 std::vector<std::int32_t> never, std::vector<std::int32_t> eos,
                 std::unique_ptr<Constraint> constraint, std::uint64_t stream)
    : params_(std::move(params)),
      rng_(seed, stream),
      n_usable_(n_usable),
      never_(std::move(never)),
      processors_(without_forced_end(params_.processors, constraint != nullptr), params_.repetition_penalty,
                  eos),
      constraint_(std::move(constraint)) {
  if (!constraint_) return;
  ends_ = params_.stop_token_ids;
  if (!params_.ignore_eos) ends_.insert(ends_.end(), eos.begin(), eos.end());
  mask_.resize((static_cast<std::size_t>(n_usable_) + 31) / 32);
}

void Sampler::observe_prompt(std::span<const std::int32_t> ids) {
  if (processors_.is_active()) processors_.observe_prompt(ids);
}

void Sampler::take_logits(std::span<const float> raw) {
  const std::size_t n = std::min<std::size_t>(raw.size(), static_cast<std::size_t>(n_usable_));
  work_.assign(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(n));
  bool is_fine = true;
  for (const float x : work_) is_fine &= x < std::numeric_limits<float>::infinity();  // false for NaN
  if (is_fine) return;
  const auto is_bad = [](float x) { return !(x < std::numeric_limits<float>::infinity()); };
  const auto first = std::find_if(work_.begin(), work_.end(), is_bad);
  fail(ErrorCode::kInvalidFile,
       "logits: {} of {} values are not finite, the first {} at [{}]; --check-numerics names the part of the "
       "model in which they arise",
       std::count_if(work_.begin(), work_.end(), is_bad), work_.size(), *first, first - work_.begin());
}

void Sampler::penalize() {
  if (processors_.is_active()) processors_.run(work_);
  for (std::size_t i = 0; i < answer_counts_.size() && i < work_.size(); ++i)
    if (const std::int32_t count = answer_counts_[i]; count > 0)
      work_[i] -= params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
  for (const auto& [id, bias] : params_.logit_bias)
    if (static_cast<std::size_t>(id) < work_.size()) work_[static_cast<std::size_t>(id)] += bias;
  for (const std::int32_t id : never_)
    if (id >= 0 && static_cast<std::size_t>(id) < work_.size())
      work_[static_cast<std::size_t>(id)] = kMinusInfinity;
}

bool Sampler::ends(std::int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }

void Sampler::constrain() {
  constraint_->mask(mask_);
  const bool may_end = constraint_->may_end();
  for (const std::int32_t id : ends_) {
    const auto i = static_cast<std::size_t>(id);
    if (id < 0 || i / 32 >= mask_.size()) continue;
    const std::uint32_t bit = 1U << (i % 32);
    mask_[i / 32] = may_end ? mask_[i / 32] | bit : mask_[i / 32] & ~bit;
  }
  for (std::size_t i = 0; i < work_.size(); i += 32) {
    const std::uint32_t word = mask_[i / 32];
    if (word == ~0U) continue;
    const std::size_t end = std::min(i + 32, work_.size());
    for (std::size_t k = i; k < end; ++k)
      if ((word >> (k - i) & 1U) == 0) work_[k] = kMinusInfinity;
  }
}

std::int32_t Sampler::draw(float top) {
  candidates_.clear();
  // The largest is taken out first: a quotient by a tiny temperature may be -infinity, which is a probability
  // of 0, and never infinity or not a number.
  for (std::size_t i = 0; i < work_.size(); ++i)
    if (work_[i] != kMinusInfinity)
      candidates_.emplace_back((work_[i] - top) / params_.temperature, static_cast<std::int32_t>(i));
  if (params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k - 1, candidates_.end(), better);
    candidates_.resize(static_cast<std::size_t>(params_.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  softmax(candidates_);
  if (params_.top_p < 1.0F) {
    keep_top_p(candidates_, params_.top_p);
    renormalize(candidates_);
  }
  if (params_.min_p > 0) {
    const float floor = params_.min_p * candidates_.front().first;
    std::erase_if(candidates_, [&](const auto& c) { return c.first < floor; });
    renormalize(candidates_);
  }
  if (params_.typical_p < 1.0F) {
    keep_typical(candidates_, params_.typical_p);
    renormalize(candidates_);
  }
  double left = rng_.uniform();
  for (const auto& c : candidates_) {
    left -= static_cast<double>(c.first);
    if (left < 0) return c.second;
  }
  return candidates_.back().second;
}

// Of the model's own distribution over the usable ids.
std::size_t Sampler::n_let_through(std::span<const std::int32_t> ids) const {
  if (!constraint_) return ids.size();
  Constraint ahead(*constraint_);
  std::size_t n = 0;
  while (n < ids.size() && !ends(ids[n]) && ahead.accept(ids[n])) ++n;
  return n;
}

void Sampler::list_logprobs(std::span<const float> logits, SampledToken& out) {
  logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(n_usable_)));
  const double total = log_sum_exp(logits);
  out.logprob = static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(out.id)]) - total);
  const std::size_t n = std::min(static_cast<std::size_t>(params_.n_logprobs), logits.size());
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates_.emplace_back(logits[i], static_cast<std::int32_t>(i));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(n),
                    candidates_.end(), better);
  for (std::size_t i = 0; i < n; ++i)
    out.top.push_back(
        {candidates_[i].second, static_cast<float>(static_cast<double>(candidates_[i].first) - total)});
}

SampledToken Sampler::sample(std::span<const float> logits) {
  take_logits(logits);
  penalize();
  if (constraint_) constrain();
  const auto best = std::max_element(work_.begin(), work_.end());  // the lowest id on a tie
  if (best == work_.end() || *best == kMinusInfinity) {
    if (constraint_)
      fail(ErrorCode::kInvalidArgument,
           "the answer cannot go on: no token that its constraint lets through may be sampled");
    fail(ErrorCode::kInternal, "no token can be sampled: every logit is -inf");
  }
  SampledToken out;
  out.id = params_.temperature == 0.0F ? static_cast<std::int32_t>(best - work_.begin()) : draw(*best);
  if (constraint_) {
    last_bytes_.clear();
    TRIPTYCH_CHECK(ends(out.id) || constraint_->accept(out.id, &last_bytes_), "token {} was let through",
                   out.id);
  }
  if (params_.n_logprobs >= 0) list_logprobs(logits, out);
  if (processors_.is_active()) processors_.observe_token(out.id);
  if (params_.frequency_penalty != 0.0F || params_.presence_penalty != 0.0F) {
    if (answer_counts_.empty()) answer_counts_.assign(static_cast<std::size_t>(n_usable_), 0);
    ++answer_counts_[static_cast<std::size_t>(out.id)];
  }
  return out;
}

}  // namespace triptych
