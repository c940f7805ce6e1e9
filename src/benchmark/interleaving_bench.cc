// What those who are being answered notice of another's picture: the time between their tokens alone, and
// while a picture of 1344 x 1344 is encoded and read, by the limit on a step (in percent of a step that only
// decodes; 0: none), and how long the other then waits for its first token. TRIPTYCH_BENCH_SHAPE names a
// published shape, TRIPTYCH_BENCH_SEQUENCES how many decode.
// And what giving way to others costs a sequence.
//   build/release/bench/benchmark_bench --benchmark_filter='Interleaving|GivingWay'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmark/published_shapes.h"
#include "engine/engine.h"
#include "tensor/quant_format.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSide_px = 1344;

std::string setting(const char* name, const char* otherwise) {
  const char* set = std::getenv(name);
  return set != nullptr ? set : otherwise;
}

LoadedModel& model() {
  static const auto value = [] {
    LoadOptions options;
    const auto int8 = QuantFormat::parse("int8");
    options.weight_formats = {.language = int8, .vision = int8, .lm_head = int8};
    return LoadedModel::with_random_weights(
        published_config(setting("TRIPTYCH_BENCH_SHAPE", "llava-onevision-0.5b")), DType::kBF16, options);
  }();
  return *value;
}

PreparedRequest request(bool with_picture, int n_text) {
  PreparedRequest out;
  std::vector<MediaPlan> plans;
  if (with_picture) {
    Image image{kSide_px, kSide_px, {}};
    image.rgb.resize(std::size_t{3} * kSide_px * kSide_px);
    for (std::size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<std::uint8_t>(i * 31 / 7);
    MediaItem item;
    item.plan = model().model().plan_media({.width_px = kSide_px, .height_px = kSide_px}, {});
    item.pixels = model().model().preprocess({&image, 1}, item.plan, &model().media_pool());
    plans.push_back(item.plan);
    out.media.push_back(std::move(item));
    out.token_ids.push_back(model().info().image_token_id);
  }
  for (int i = 0; i < n_text; ++i) out.token_ids.push_back(10 + 7 * i % 500);
  out.layout = model().model().expand_prompt(out.token_ids, plans);
  return out;
}

SamplingParams answer(std::int64_t n_tokens) {
  SamplingParams out;
  out.max_tokens = n_tokens;
  out.ignore_eos = true;
  return out;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// Steps until `stop`; the times between tokens of each sequence, but for `left_out`.
template <typename Stop>
std::vector<double> gaps_ms(Engine& engine, RequestId left_out, Stop stop) {
  std::map<RequestId, Clock::time_point> last;
  std::vector<double> out;
  for (bool stopped = false; !stopped && engine.has_work();) {
    const auto outputs = engine.step();
    const auto now = Clock::now();
    for (const StepOutput& one : outputs) {
      if (one.events.empty() || one.id == left_out) continue;
      if (const auto before = last.find(one.id); before != last.end())
        out.push_back(std::chrono::duration<double, std::milli>(now - before->second).count());
      last[one.id] = now;
    }
    stopped = stop(outputs);
  }
  return out;
}

void BM_Interleaving(benchmark::State& state) {
  const int n_sequences = std::atoi(setting("TRIPTYCH_BENCH_SEQUENCES", "4").c_str());
  const std::int64_t context = 8192;
  for (auto _ : state) {
    EngineOptions options{.max_context_tokens = context,
                          .kv_cache_tokens = context * (n_sequences + 1),
                          .max_sequences = n_sequences + 1};
    const auto start_others = [&](Engine& engine, std::int64_t n_tokens) {
      for (int i = 0; i < n_sequences; ++i) engine.submit(request(false, 32 + i), answer(n_tokens));
      for (int i = 0; i < 8; ++i) engine.step();
    };
    double alone_p50 = 0;
    double alone_p99 = 0;
    {
      Engine engine(model(), options);
      start_others(engine, 150);
      const std::vector<double> gaps = gaps_ms(engine, 0, [](auto) { return false; });
      alone_p50 = percentile(gaps, 0.5);
      alone_p99 = percentile(gaps, 0.99);
    }
    options.max_step_ms = alone_p50 * static_cast<double>(state.range(0)) / 100;
    Engine engine(model(), options);
    start_others(engine, context - 200);
    PreparedRequest asked = request(true, 32);
    const auto start = Clock::now();
    const RequestId seeing = engine.submit(std::move(asked), answer(1));
    const std::vector<double> gaps = gaps_ms(engine, seeing, [&](const auto& outputs) {
      return std::any_of(outputs.begin(), outputs.end(),
                         [&](const StepOutput& one) { return one.id == seeing && !one.events.empty(); });
    });
    state.counters["alone_p50_ms"] = alone_p50;
    state.counters["alone_p99_ms"] = alone_p99;
    state.counters["p50_ms"] = percentile(gaps, 0.5);
    state.counters["p99_ms"] = percentile(gaps, 0.99);
    state.counters["longest_ms"] = percentile(gaps, 1);
    state.counters["p99_ratio"] = alone_p99 > 0 ? percentile(gaps, 0.99) / alone_p99 : 0;
    state.counters["first_token_s"] = std::chrono::duration<double>(Clock::now() - start).count();
    state.counters["stretches"] = static_cast<double>(engine.n_encode_stretches());
  }
}
// What a sequence of 1024 tokens that gave way costs: computing it again, or copying its blocks away and
// back.
constexpr int kTokens = 1024;

void BM_GivingWayRecompute(benchmark::State& state) {
  Engine engine(model(), {.max_context_tokens = 2 * kTokens});
  const PreparedRequest prompt = request(false, kTokens);
  for (auto _ : state) benchmark::DoNotOptimize(engine.forward_prompt(prompt, nullptr).data());
}

void BM_GivingWayCopy(benchmark::State& state) {
  const ModelInfo& info = model().info();
  constexpr int kPages = kTokens / kBlockTokens;
  const auto cache = model().backend().make_kv_cache({.n_layers = info.n_layers,
                                                      .n_kv_heads = info.n_kv_heads,
                                                      .head_dim = info.head_dim,
                                                      .page_tokens = kBlockTokens,
                                                      .n_pages = 2 * kPages,
                                                      .dtype = model().auto_kv_dtype()});
  Tensor rows(DType::kF32, {kTokens, info.n_kv_heads, info.head_dim});
  std::fill_n(rows.view().f32(), rows.view().numel(), 0.5F);
  std::vector<std::int32_t> slots(kTokens);
  for (int i = 0; i < kTokens; ++i) slots[static_cast<std::size_t>(i)] = i;
  for (int layer = 0; layer < info.n_layers; ++layer)
    model().backend().kv_append(*cache, layer, rows.view(), rows.view(), slots);
  for (auto _ : state)
    for (const int back : {0, kPages})
      for (int page = 0; page < kPages; ++page)
        cache->copy_page((page + back) % (2 * kPages), (page + kPages + back) % (2 * kPages));
  state.counters["bytes"] = static_cast<double>(cache->bytes()) / 2;
}

BENCHMARK(BM_GivingWayRecompute)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_GivingWayCopy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Interleaving)->Arg(0)->Arg(300)->Arg(200)->Arg(150)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace triptych
