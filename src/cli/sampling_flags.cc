#include <charconv>
#include <limits>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/flag_checks.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "engine/sampling.h"

namespace triptych::cli {
namespace {

// "128=-1.5" -> (128, -1.5).
std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t at = text.find('=');
  std::int32_t id = 0;
  double bias = 0;
  const char* end = text.data() + text.size();
  if (at != std::string::npos) {
    const auto left = std::from_chars(text.data(), text.data() + at, id);
    const auto right = std::from_chars(text.data() + at + 1, end, bias);
    if (left.ec == std::errc() && left.ptr == text.data() + at && right.ec == std::errc() && right.ptr == end)
      return {id, static_cast<float>(bias)};
  }
  fail(ErrorCode::kInvalidArgument, "--logit-bias: expected ID=BIAS such as 128=-100, got \"{}\"", text);
}

template <typename T>
void take(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

// The engine's parameters or those of the public interface.
template <typename Params>
Params merged(const SamplingFlags& flags, Params out) {
  take(flags.temperature, out.temperature);
  take(flags.top_k, out.top_k);
  take(flags.top_p, out.top_p);
  take(flags.min_p, out.min_p);
  take(flags.typical_p, out.typical_p);
  take(flags.repetition_penalty, out.repetition_penalty);
  take(flags.frequency_penalty, out.frequency_penalty);
  take(flags.presence_penalty, out.presence_penalty);
  take(flags.max_tokens, out.max_tokens);
  take(flags.n_logprobs, out.n_logprobs);
  take(flags.n, out.n);
  take(flags.best_of, out.best_of);
  if (flags.seed) out.seed = flags.seed;
  for (const std::string& bias : flags.logit_bias) out.logit_bias.push_back(parse_bias(bias));
  out.stop.insert(out.stop.end(), flags.stop.begin(), flags.stop.end());
  out.stop_token_ids.insert(out.stop_token_ids.end(), flags.stop_token_ids.begin(),
                            flags.stop_token_ids.end());
  out.ignore_eos = out.ignore_eos || flags.ignore_eos;
  return out;
}

}  // namespace

void SamplingFlags::add_to(CLI::App& app) {
  const auto group = [](CLI::Option* option, const char* type, const char* otherwise = "the model's") {
    option->group(help_group::kSampling)->type_name(type)->default_str(otherwise);
  };
  const auto number = [&](CLI::Option* option, const char* type) { group(option->check(is_number()), type); };
  group(app.add_option("--max-tokens,--max-new-tokens,-n", max_tokens, "Longest answer, tokens")
            ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description("")),
        "N", "what the context leaves, or max_length of the model's generation_config.json");
  number(app.add_option("--temperature", temperature, "0: always the likeliest token"), "X");
  group(app.add_option("--top-k", top_k, "Choose among the K likeliest tokens; 0: all")
            ->check(is_int_32("a whole number of 32 bits")),
        "K");
  number(app.add_option("--top-p", top_p, "Choose among the likeliest tokens that reach this probability"),
         "P");
  number(app.add_option("--min-p", min_p, "Drop tokens below this share of the likeliest one's probability"),
         "P");
  number(app.add_option("--typical-p,--typical", typical_p, "Locally typical sampling; 1: off"), "P");
  number(app.add_option("--repetition-penalty,--repeat-penalty", repetition_penalty,
                        "Divide the logits of tokens seen before; 1: off"),
         "X");
  number(app.add_option("--frequency-penalty", frequency_penalty, "Subtracted per occurrence in the answer"),
         "X");
  number(app.add_option("--presence-penalty", presence_penalty, "Subtracted once a token is in the answer"),
         "X");
  group(app.add_option("--logit-bias", logit_bias, "Added to a token's logit; may be repeated")
            ->expected(1)
            ->take_all(),
        "ID=BIAS", "");
  group(app.add_option("--seed", seed, "The same seed gives the same answer, with any number of threads")
            ->check(is_unsigned_64()),
        "N", "drawn anew");
  group(app.add_option("--stop", stop, "End the answer before this text; may be repeated")
            ->expected(1)
            ->take_all(),
        "TEXT", "");
  group(app.add_option("--stop-token-ids", stop_token_ids,
                       "Further tokens that end the answer; may be repeated")
            ->expected(1)
            ->take_all()
            ->delimiter(',')
            ->check(is_int_32("ids of tokens such as 2,13")),
        "ID,...", "");
  group(app.add_option("--logprobs", n_logprobs, "Report each token's log probability and the N likeliest")
            ->check(CLI::Range(0, 100).description("")),
        "N", "");
  const auto choices = CLI::Range(1, 128).description("");
  group(app.add_option("--n", n, "Answers to the question, drawn apart; its pictures and text are read once")
            ->check(choices),
        "N", "1");
  group(app.add_option("--best-of", best_of,
                       "Answers to draw; the N of --n with the highest log probability are kept")
            ->check(choices),
        "M", "the N of --n");
  app.add_flag("--ignore-eos", ignore_eos, "Go on after the model's own stop token")
      ->group(help_group::kSampling);
}

void SamplingFlags::check() const {
  over(SamplingParams()).validate(std::numeric_limits<std::int32_t>::max());
}

SamplingParams SamplingFlags::over(const SamplingParams& defaults) const { return merged(*this, defaults); }
api::SamplingParams SamplingFlags::over(const api::SamplingParams& defaults) const {
  return merged(*this, defaults);
}

}  // namespace triptych::cli
