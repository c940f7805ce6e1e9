#include "benchmark/bench_speculation.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/error.h"
#include "benchmark/bench.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kForced = 1e6F;  // above every logit

// Ids in the order of their numbers, without those that an answer never holds.
class Ids {
 public:
  explicit Ids(const LoadedModel& model) : model_(model) {}

  std::int32_t next() {
    for (;; ++next_) {
      if (next_ >= model_.n_usable_ids())
        fail(ErrorCode::kInvalidArgument, "the vocabulary of {} is too small for prompt and answer",
             model_.n_usable_ids());
      const auto holds = [&](const std::vector<std::int32_t>& ids) {
        return std::find(ids.begin(), ids.end(), next_) != ids.end();
      };
      if (next_ != model_.info().image_token_id && next_ != model_.info().video_token_id &&
          !holds(model_.info().never_sample) && !holds(model_.stop_token_ids()))
        return next_++;
    }
  }
  std::vector<std::int32_t> take(std::int64_t n) {
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < n; ++i) out.push_back(next());
    return out;
  }

 private:
  const LoadedModel& model_;
  std::int32_t next_ = 3;  // behind the usual control tokens
};

// A prompt and the answer that is forced on the model. All tokens of an answer differ, so that each says
// which follows.
struct Script {
  std::vector<std::int32_t> prompt, answer;
};

// The prompt's tokens in stretches of `n_copied`, taken from its end to its beginning so that none goes on
// into the next, with `n_own` between them.
Script repeat(Ids ids, std::int64_t n_prompt, std::int64_t n_answer, std::int64_t n_copied,
              std::int64_t n_own) {
  Script out{ids.take(n_prompt), {}};
  std::int64_t from = n_prompt - 1;
  while (static_cast<std::int64_t>(out.answer.size()) < n_answer) {
    from -= n_copied;
    for (std::int64_t i = 0; i < n_copied && from >= 0; ++i)
      out.answer.push_back(out.prompt[static_cast<std::size_t>(from + i)]);
    for (std::int64_t i = 0; i < (from >= 0 ? n_own : 1); ++i) out.answer.push_back(ids.next());
  }
  out.answer.resize(static_cast<std::size_t>(n_answer));
  return out;
}

// Pairs of the prompt, each followed by a third token there, one after another without it.
Script decoy(Ids ids, std::int64_t n_prompt, std::int64_t n_answer) {
  Script out{ids.take(n_prompt), {}};
  for (std::int64_t at = 0; at + 3 < n_prompt && static_cast<std::int64_t>(out.answer.size()) < n_answer;
       at += 3)
    for (std::int64_t i = 0; i < 2; ++i) out.answer.push_back(out.prompt[static_cast<std::size_t>(at + i)]);
  while (static_cast<std::int64_t>(out.answer.size()) < n_answer) out.answer.push_back(ids.next());
  out.answer.resize(static_cast<std::size_t>(n_answer));
  return out;
}

class Bench {
 public:
  Bench(LoadedModel& model, const SpeculationBenchOptions& options)
      : model_(model),
        options_(options),
        engine_(model, engine_options(options.speculation)),
        plain_(model, engine_options({})) {}

  SpeculationTrace run(const std::string& name, const Script& script) {
    SpeculationTrace out{.name = name};
    std::vector<double> with, without, speedups;
    const SpeculationCounts before = engine_.speculation_counts();
    answer(plain_, script, out);  // warms both up
    answer(engine_, script, out);
    for (int i = 0; i < options_.n_repeats; ++i) {
      // Which goes first changes: a machine that slows down favours neither.
      const bool plain_first = i % 2 == 0;
      if (plain_first) without.push_back(answer(plain_, script, out));
      with.push_back(answer(engine_, script, out));
      if (!plain_first) without.push_back(answer(plain_, script, out));
      speedups.push_back(without.back() / with.back());
    }
    const auto n_tokens =
        static_cast<double>((script.answer.size() - 1) * static_cast<std::size_t>(options_.n_sequences));
    out.tokens_per_s = n_tokens / median(with) * 1000;
    out.plain_tokens_per_s = n_tokens / median(without) * 1000;
    out.speedup = median(speedups);
    const auto [low, high] = std::minmax_element(speedups.begin(), speedups.end());
    out.lowest_speedup = *low;
    out.highest_speedup = *high;
    out.n_drafted = engine_.speculation_counts().n_drafted - before.n_drafted;
    out.n_accepted = engine_.speculation_counts().n_accepted - before.n_accepted;
    return out;
  }

 private:
  EngineOptions engine_options(const SpeculativeOptions& speculation) const {
    EngineOptions out;
    out.max_context_tokens = options_.prompt_tokens + options_.decode_tokens + 1;
    if (out.max_context_tokens > model_.info().max_context_tokens)
      fail(ErrorCode::kInvalidArgument,
           "prompt_tokens and decode_tokens: {} together, the model was trained for {}",
           out.max_context_tokens, model_.info().max_context_tokens);
    out.kv_cache_tokens = options_.n_sequences * (out.max_context_tokens + 64);
    out.max_sequences = options_.n_sequences;
    // All prompts in one step, so that the sequences decode together from then on.
    out.max_batch_tokens = std::max<std::int64_t>(1024, options_.n_sequences * options_.prompt_tokens);
    out.kv_cache_dtype = options_.kv_cache_dtype;
    out.replay_steps = options_.replay_steps;
    out.speculation = speculation;
    return out;
  }

  // Duration of all steps behind that of the prompts, ms.
  double answer(Engine& engine, const Script& script, SpeculationTrace& out) {
    SamplingParams params;
    params.max_tokens = static_cast<std::int64_t>(script.answer.size());
    params.ignore_eos = true;
    params.processors.sequence_bias.push_back({{script.prompt.back(), script.answer.front()}, kForced});
    for (std::size_t i = 0; i + 1 < script.answer.size(); ++i)
      params.processors.sequence_bias.push_back({{script.answer[i], script.answer[i + 1]}, kForced});
    std::vector<RequestId> ids;
    for (int i = 0; i < options_.n_sequences; ++i) {
      PreparedRequest request;
      request.token_ids = script.prompt;
      request.layout = model_.model().expand_prompt(script.prompt, {});
      ids.push_back(engine.submit(std::move(request), params));
    }
    engine.step();
    const Clock::time_point start = Clock::now();
    while (engine.has_work()) engine.step();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    for (const RequestId id : ids) {
      const auto result = engine.take_result(id);
      if (result->error) throw Error(result->error->code, result->error->message);
      out.is_same = out.is_same && result->token_ids == script.answer;
    }
    return ms;
  }

  LoadedModel& model_;
  const SpeculationBenchOptions& options_;
  Engine engine_, plain_;
};

}  // namespace

std::vector<SpeculationTrace> run_speculation_bench(LoadedModel& model,
                                                    const SpeculationBenchOptions& options) {
  const std::int64_t n_prompt = options.prompt_tokens;
  const std::int64_t n_answer = options.decode_tokens;
  const Ids ids(model);
  const std::pair<const char*, std::function<Script()>> scripts[] = {
      {"extraction", [&] { return repeat(ids, n_prompt, n_answer, 24, 0); }},
      {"half", [&] { return repeat(ids, n_prompt, n_answer, 8, 8); }},
      {"decoy", [&] { return decoy(ids, n_prompt, n_answer); }},
      {"free", [&] { return repeat(ids, n_prompt, n_answer, 0, n_answer); }}};
  std::vector<SpeculationTrace> out;
  // An engine each: what it learnt of one trace says nothing of another.
  for (const auto& [name, make] : scripts) out.push_back(Bench(model, options).run(name, make()));
  return out;
}

}  // namespace triptych
