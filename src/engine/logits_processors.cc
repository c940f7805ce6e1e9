#include "engine/logits_processors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace triptych {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kMostLogit = std::numeric_limits<float>::max();
constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;

void set(std::span<float> logits, std::int32_t id, float value) {
  if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) logits[static_cast<std::size_t>(id)] = value;
}

// In double, rounded to the largest float: a tiny penalty must not make different logits equal by infinity.
float penalized(float logit, double penalty) {
  const double value =
      logit > 0 ? static_cast<double>(logit) / penalty : static_cast<double>(logit) * penalty;
  constexpr double kMost = static_cast<double>(kMostLogit);
  return std::isinf(logit) ? logit : static_cast<float>(std::clamp(value, -kMost, kMost));
}

std::int32_t read_id(const JsonView& json) {
  return static_cast<std::int32_t>(json.as_int(0, std::numeric_limits<std::int32_t>::max()));
}

// A number or a list of numbers.
std::vector<std::int32_t> read_ids(const JsonView& json) {
  if (!json.is_array()) return {read_id(json)};
  std::vector<std::int32_t> out;
  for (const JsonView& id : json.items()) out.push_back(read_id(id));
  return out;
}

// A list of two, e.g. ids and their bias.
std::pair<JsonView, JsonView> read_pair(const JsonView& json) {
  const std::vector<JsonView> items = json.items();
  if (items.size() != 2) json.fail_expected("a list of two");
  return {items[0], items[1]};
}

bool is_on(const JsonView& config, const char* field) {
  const auto value = config.find(field);
  if (!value || value->raw().is_null()) return false;
  const Json& raw = value->raw();
  if (raw.is_boolean()) return raw.get<bool>();
  if (raw.is_array() || raw.is_object()) return !raw.empty();
  return !raw.is_number() || raw.get<double>() != 0;
}

void check_ids(const char* field, std::span<const std::int32_t> ids, std::int64_t vocab_size) {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= vocab_size)
      fail(ErrorCode::kInvalidArgument, "{}: token id {} is outside [0, {})", field, id, vocab_size);
}

}  // namespace

LogitsProcessorParams LogitsProcessorParams::parse(const JsonView& g,
                                                   std::vector<std::string_view>& unsupported) {
  LogitsProcessorParams out;
  if (const auto biases = g.find("sequence_bias"))
    for (const JsonView& entry : biases->items()) {
      const auto [ids, bias] = read_pair(entry);
      out.sequence_bias.emplace_back(read_ids(ids), static_cast<float>(bias.as_double()));
    }
  if (const auto words = g.find("bad_words_ids"))
    for (const JsonView& ids : words->items()) out.bad_words_ids.push_back(read_ids(ids));
  out.encoder_repetition_penalty = static_cast<float>(g.get_double("encoder_repetition_penalty", 1.0));
  out.no_repeat_ngram_size = g.get_int("no_repeat_ngram_size", 0, 0, kMaxLength);
  out.min_length = g.get_int("min_length", 0, 0, kMaxLength);
  out.min_new_tokens = g.get_int("min_new_tokens", 0, 0, kMaxLength);
  out.max_length = g.get_int("max_length", 0, 0, kMaxLength);
  if (const auto ids = g.find("forced_eos_token_id")) out.forced_eos_token_id = read_ids(*ids);
  if (const auto decay = g.find("exponential_decay_length_penalty")) {
    const auto [start, factor] = read_pair(*decay);
    out.exponential_decay_length_penalty = {start.as_int(0, kMaxLength),
                                            static_cast<float>(factor.as_double())};
  }
  if (const auto ids = g.find("suppress_tokens")) out.suppress_tokens = read_ids(*ids);
  if (const auto ids = g.find("begin_suppress_tokens")) out.begin_suppress_tokens = read_ids(*ids);

  if (g.get_int("num_beams", 1, 1, kMaxLength) > 1) unsupported.push_back("num_beams");
  for (const char* field : {"num_beam_groups", "num_return_sequences"})
    if (g.find(field) && g.get_int(field, 1, 0, kMaxLength) > 1) unsupported.push_back(field);
  if (g.get_double("guidance_scale", 1.0) != 1.0) unsupported.push_back("guidance_scale");
  for (const char* field :
       {"penalty_alpha", "diversity_penalty", "encoder_no_repeat_ngram_size", "forced_bos_token_id",
        "force_words_ids", "constraints", "epsilon_cutoff", "eta_cutoff", "dola_layers",
        "watermarking_config", "prompt_lookup_num_tokens", "stop_strings", "max_time", "top_h"})
    if (is_on(g, field)) unsupported.push_back(field);
  return out;
}

void LogitsProcessorParams::validate(std::int64_t vocab_size) const {
  for (const auto& [ids, bias] : sequence_bias) {
    if (ids.empty()) fail(ErrorCode::kInvalidArgument, "sequence_bias: a sequence without ids");
    check_ids("sequence_bias", ids, vocab_size);
    if (!std::isfinite(bias))
      fail(ErrorCode::kInvalidArgument, "sequence_bias: {} is not a finite number", bias);
  }
  for (const auto& ids : bad_words_ids) {
    if (ids.empty()) fail(ErrorCode::kInvalidArgument, "bad_words_ids: a sequence without ids");
    check_ids("bad_words_ids", ids, vocab_size);
  }
  if (!(encoder_repetition_penalty > 0) || encoder_repetition_penalty > 10)
    fail(ErrorCode::kInvalidArgument, "encoder_repetition_penalty: expected a number in (0, 10], got {}",
         encoder_repetition_penalty);
  check_ids("forced_eos_token_id", forced_eos_token_id, vocab_size);
  check_ids("suppress_tokens", suppress_tokens, vocab_size);
  check_ids("begin_suppress_tokens", begin_suppress_tokens, vocab_size);
  if (exponential_decay_length_penalty && !(exponential_decay_length_penalty->second > 0 &&
                                            std::isfinite(exponential_decay_length_penalty->second)))
    fail(ErrorCode::kInvalidArgument, "exponential_decay_length_penalty: expected a factor above 0, got {}",
         exponential_decay_length_penalty->second);
}

bool LogitsProcessorParams::is_neutral() const noexcept {
  return sequence_bias.empty() && bad_words_ids.empty() && encoder_repetition_penalty == 1.0F &&
         no_repeat_ngram_size == 0 && min_length == 0 && min_new_tokens == 0 && forced_eos_token_id.empty() &&
         !exponential_decay_length_penalty && suppress_tokens.empty() && begin_suppress_tokens.empty();
}

LogitsProcessors::LogitsProcessors(LogitsProcessorParams params, float repetition_penalty,
                                   std::vector<std::int32_t> eos)
    : params_(std::move(params)),
      repetition_penalty_(repetition_penalty),
      eos_(std::move(eos)),
      is_active_(repetition_penalty != 1.0F || !params_.is_neutral()) {
  // A word that is only the end is no bad word (NoBadWordsLogitsProcessor): answers could not end.
  std::erase_if(params_.bad_words_ids, [&](const std::vector<std::int32_t>& ids) {
    return ids.size() == 1 && std::find(eos_.begin(), eos_.end(), ids[0]) != eos_.end();
  });
}

void LogitsProcessors::observe_prompt(std::span<const std::int32_t> ids) {
  constexpr std::size_t kAnswerTokens = 512;  // most answers then take no memory token by token
  ids_.reserve(ids_.size() + ids.size() + kAnswerTokens);
  distinct_.reserve(ids_.size() + ids.size() + kAnswerTokens);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  n_prompt_ = ids_.size();
  for (const std::int32_t id : ids) note(id);
  n_distinct_prompt_ = distinct_.size();
}

void LogitsProcessors::observe_token(std::int32_t id) {
  ids_.push_back(id);
  note(id);
}

void LogitsProcessors::note(std::int32_t id) {
  if (id < 0) return;
  const auto at = static_cast<std::size_t>(id);
  if (at >= is_noted_.size()) is_noted_.resize(at + 1);
  if (is_noted_[at]) return;
  is_noted_[at] = true;
  distinct_.push_back(id);
}

bool LogitsProcessors::follows(std::span<const std::int32_t> sequence) const {
  if (sequence.size() == 1) return true;
  // One as long as all there is so far is looked at, a longer one is not (SequenceBiasLogitsProcessor).
  if (sequence.size() > ids_.size()) return false;
  const auto prefix = sequence.first(sequence.size() - 1);
  return std::equal(prefix.begin(), prefix.end(), ids_.end() - static_cast<std::ptrdiff_t>(prefix.size()));
}

void LogitsProcessors::add_sequence_bias(std::span<float> logits) const {
  for (const auto& [ids, bias] : params_.sequence_bias)
    if (const auto id = static_cast<std::size_t>(ids.back());
        id < logits.size() && !std::isinf(logits[id]) && follows(ids))
      logits[id] = std::clamp(logits[id] + bias, -kMostLogit, kMostLogit);
}

void LogitsProcessors::penalize_repetition(std::span<float> logits) const {
  const auto apply = [&](std::span<const std::int32_t> ids, double penalty) {
    for (const std::int32_t id : ids)
      if (static_cast<std::size_t>(id) < logits.size())
        logits[static_cast<std::size_t>(id)] = penalized(logits[static_cast<std::size_t>(id)], penalty);
  };
  const std::span<const std::int32_t> all = distinct_;
  if (params_.encoder_repetition_penalty != 1.0F)
    apply(all.first(n_distinct_prompt_), 1.0 / static_cast<double>(params_.encoder_repetition_penalty));
  if (repetition_penalty_ != 1.0F) apply(all, static_cast<double>(repetition_penalty_));
}

void LogitsProcessors::ban_ngrams(std::span<float> logits) const {
  const auto n = static_cast<std::size_t>(params_.no_repeat_ngram_size);
  if (n == 0 || ids_.size() + 1 < n) return;
  const auto tail = ids_.end() - static_cast<std::ptrdiff_t>(n - 1);
  for (auto at = ids_.begin(); static_cast<std::size_t>(ids_.end() - at) >= n; ++at)
    if (std::equal(tail, ids_.end(), at)) set(logits, at[static_cast<std::ptrdiff_t>(n - 1)], kNever);
}

void LogitsProcessors::hold_back_end(std::span<float> logits) const {
  const auto n_all = static_cast<std::int64_t>(ids_.size());
  const std::int64_t n_new = n_all - static_cast<std::int64_t>(n_prompt_);
  if (n_all < params_.min_length || n_new < params_.min_new_tokens)
    for (const std::int32_t id : eos_) set(logits, id, kNever);
}

void LogitsProcessors::force_end(std::span<float> logits) const {
  const auto n_all = static_cast<std::int64_t>(ids_.size());
  if (!params_.forced_eos_token_id.empty() && params_.max_length > 0 && n_all == params_.max_length - 1) {
    std::fill(logits.begin(), logits.end(), kNever);
    for (const std::int32_t id : params_.forced_eos_token_id) set(logits, id, 0.0F);
  }
  if (!params_.exponential_decay_length_penalty) return;
  const auto [start, factor] = *params_.exponential_decay_length_penalty;
  const std::int64_t n_late = n_all - static_cast<std::int64_t>(n_prompt_) - start;
  if (n_late <= 0) return;
  // Never infinite: times a logit of 0 that would be NaN.
  const double growth = std::min(std::pow(static_cast<double>(factor), static_cast<double>(n_late)) - 1,
                                 static_cast<double>(kMostLogit));
  for (const std::int32_t id : eos_)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) {
      float& logit = logits[static_cast<std::size_t>(id)];
      if (!std::isfinite(logit)) continue;
      constexpr double kMost = static_cast<double>(kMostLogit);
      logit = static_cast<float>(std::clamp(
          static_cast<double>(logit) + std::abs(static_cast<double>(logit)) * growth, -kMost, kMost));
    }
}

void LogitsProcessors::run(std::span<float> logits) const {
  add_sequence_bias(logits);
  penalize_repetition(logits);
  ban_ngrams(logits);
  for (const auto& ids : params_.bad_words_ids)
    if (follows(ids)) set(logits, ids.back(), kNever);
  hold_back_end(logits);
  force_end(logits);
  for (const std::int32_t id : params_.suppress_tokens) set(logits, id, kNever);
  if (ids_.size() == n_prompt_)
    for (const std::int32_t id : params_.begin_suppress_tokens) set(logits, id, kNever);
}

}  // namespace triptych
