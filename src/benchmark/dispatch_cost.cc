#include "benchmark/dispatch_cost.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "report/text_table.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kShortSteps = 16;
constexpr int kSteps = 400;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Steps {
  double median_us = 0;
  std::int64_t n_loops = 0;  // of one
};

// Decode steps of short sequences, one after another: attention over many keys would be work.
Steps decode_steps(LoadedModel& model, int n_steps, bool replay_steps) {
  EngineOptions options;
  options.max_context_tokens = kShortSteps + 16;
  options.max_sequences = 1;
  options.replay_steps = replay_steps;
  Engine engine(model, options);
  std::vector<double> times;
  std::int64_t n_loops = 0;
  for (int first = 0; first < n_steps; first += kShortSteps) {
    PreparedRequest request;
    request.token_ids = {1, 2, 3, 4};
    request.layout = model.model().expand_prompt(request.token_ids, {});
    SamplingParams params;
    params.max_tokens = std::min(kShortSteps, n_steps - first) + 2;
    params.ignore_eos = true;
    engine.submit(std::move(request), params);
    for (int i = 0; i < 2; ++i) engine.step();  // the prompt, and what is made at first
    const std::int64_t before = model.backend().n_parallel_loops();
    for (int i = 2; i < params.max_tokens; ++i) {
      const Clock::time_point start = Clock::now();
      engine.step();
      times.push_back(us_since(start));
    }
    n_loops += model.backend().n_parallel_loops() - before;
  }
  const auto n = static_cast<std::int64_t>(times.size());
  return {median(std::move(times)), n_loops / n};
}

double region_us(int n_threads) {
  ThreadPool pool(n_threads);
  if (pool.n_threads() == 1) return 0;
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) {
    // Something to do between two loops, as in a step, so that workers wait.
    const Clock::time_point pause = Clock::now();
    while (us_since(pause) < 20) {
    }
    const Clock::time_point start = Clock::now();
    pool.run([](int, int) {});
    times.push_back(us_since(start));
  }
  return median(std::move(times));
}

double share_of_decode(const DispatchCost& cost, const BenchReport& report) {
  for (const BenchStage& stage : report.stages)
    if (stage.name == "decode" && stage.ms > 0) return cost.total_us() / 1000 / stage.ms;
  return 0;
}

}  // namespace

std::optional<Json> narrow_config(const Json& config) {
  constexpr int kHead = 8;
  constexpr int kVocabulary = 256;
  if (!config.contains("text_config") || !config.contains("vision_config")) return std::nullopt;
  Json out = config;
  Json& text = out["text_config"];
  Json& vision = out["vision_config"];
  if (!text.is_object() || !vision.is_object() || !text.contains("num_attention_heads") ||
      text.contains("rope_scaling") || !vision.contains("num_attention_heads") ||
      !vision.contains("patch_size") || !out.contains("image_token_index"))
    return std::nullopt;
  text["hidden_size"] = text["num_attention_heads"].get<int>() * kHead;
  text["intermediate_size"] = 64;
  text["vocab_size"] = kVocabulary;
  text.erase("head_dim");
  out["image_token_index"] = kVocabulary - 1;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    text.erase(key);
    out.erase(key);
  }
  vision["hidden_size"] = vision["num_attention_heads"].get<int>() * kHead;
  vision["intermediate_size"] = 64;
  vision["num_hidden_layers"] = 2;
  vision["image_size"] = 2 * vision["patch_size"].get<int>();
  out.erase("image_grid_pinpoints");
  return out;
}

std::optional<DispatchCost> measure_dispatch(LoadedModel& wide, const Json& config, const LoadOptions& load,
                                             bool replay_steps) {
  const auto narrow = narrow_config(config);
  if (!narrow) return std::nullopt;
  const auto model = LoadedModel::with_random_weights(*narrow, load.weight_dtype.value_or(DType::kF16), load);
  DispatchCost out;
  out.step_us = decode_steps(*model, kSteps, replay_steps).median_us;
  if (replay_steps) out.eager_us = decode_steps(*model, kSteps, false).median_us;
  out.region_us = region_us(load.n_threads);
  out.n_regions = decode_steps(wide, 8, replay_steps).n_loops;
  return out;
}

std::string dispatch_text(const DispatchCost& cost, const BenchReport& report) {
  const double share = share_of_decode(cost, report);
  return fmt::format(
      "dispatch: {:.0f} us of a decode step beside its kernels{} ({:.0f} us of calls{}, {} loops of {:.1f} "
      "us)\n",
      cost.total_us(), share > 0 ? ", " + format_percent(share) + " of it" : "", cost.step_us,
      cost.eager_us > 0 ? fmt::format(" replayed, {:.0f} us without", cost.eager_us) : "", cost.n_regions,
      cost.region_us);
}

JsonOut dispatch_json(const DispatchCost& cost, const BenchReport& report) {
  return {{"us", cost.total_us()},
          {"share_of_decode_step", share_of_decode(cost, report)},
          {"calls_us", cost.step_us},
          {"calls_without_replay_us", cost.eager_us > 0 ? cost.eager_us : cost.step_us},
          {"loops", cost.n_regions},
          {"loop_us", cost.region_us}};
}

}  // namespace triptych
