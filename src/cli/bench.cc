#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/profile.h"
#include "cli/machine.h"
#include "media/image_decode.h"

namespace triptych::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

template <typename Work>
double timed_ms(const Work& work) {
  const Clock::time_point start = Clock::now();
  work();
  return ms_since(start);
}

// Total of the zones of this name, wherever they are nested, ms.
double zone_ms(const char* name) {
  double total = 0;
  for (const ProfileEntry& entry : profile_entries())
    if (entry.name == name) total += static_cast<double>(entry.total_ns) / 1e6;
  return total;
}

struct Bench {
  LoadedModel& model;
  const BenchOptions& options;
  std::vector<std::byte> jpeg;
  Engine engine;
  std::map<std::string, std::vector<double>> times = {};  // by stage
  std::vector<double> first_token = {};
  Cost encode_cost = {};  // of tower and projector together
  MediaPlan plan = {};

  MediaItem prepare_picture(std::map<std::string, std::vector<double>>& to) {
    std::vector<Image> frames;
    MediaItem item;
    to["image decode"].push_back(timed_ms([&] { frames.push_back(decode_image(jpeg, {}, "test picture")); }));
    to["preprocess"].push_back(timed_ms([&] {
      item.plan = model.model().plan_media({.width_px = frames[0].width_px, .height_px = frames[0].height_px},
                                           options.media);
      item.pixels = model.model().preprocess(frames, item.plan, &model.media_pool());
    }));
    return item;
  }

  // Text ids around one placeholder, so that the expanded prompt has the wanted length.
  PreparedRequest make_request(MediaItem item) const {
    PreparedRequest out;
    const ModelInfo& info = model.info();
    const std::int64_t n_text = options.prompt_tokens - item.plan.n_prompt_tokens;
    if (n_text < 1)
      fail(ErrorCode::kInvalidArgument, "--prompt-tokens {}: the picture alone takes {}",
           options.prompt_tokens, item.plan.n_prompt_tokens);
    std::vector<std::int32_t> ids{info.image_token_id};
    for (std::int64_t i = 0; i < n_text; ++i) {
      auto id = static_cast<std::int32_t>((7 + 13 * i) % std::min<std::int64_t>(info.vocab_size, 1000));
      if (id == info.image_token_id || id == info.video_token_id) id = 0;
      ids.push_back(id);
    }
    const MediaPlan plans[] = {item.plan};
    out.token_ids = ids;
    out.layout = model.model().expand_prompt(ids, plans);
    out.media.push_back(std::move(item));
    return out;
  }

  static SamplingParams answer_of(std::int64_t n_tokens) {
    SamplingParams out;
    out.max_tokens = n_tokens;
    out.ignore_eos = true;
    return out;
  }

  void warm_up() {
    std::map<std::string, std::vector<double>> unused;
    std::vector<MediaItem> items;
    items.push_back(prepare_picture(unused));
    plan = items.front().plan;
    CostObserver observer;
    engine.encode_media(items, &observer);
    encode_cost = observer.cost();
    engine.generate(make_request(std::move(items.front())), answer_of(2));
  }

  void run_once() {
    const Clock::time_point start = Clock::now();
    MediaItem item = prepare_picture(times);
    const SamplingParams params = answer_of(options.decode_tokens);
    double first_ms = -1;
    set_profile_mode(ProfileMode::kSummary);
    const GenerationResult result =
        engine.generate(make_request(std::move(item)), params, [&](const TokenEvent&) {
          if (first_ms < 0) first_ms = ms_since(start);
          return true;
        });
    const double projector_ms = zone_ms("projector");
    set_profile_mode(ProfileMode::kOff);
    times["projector"].push_back(projector_ms);
    times["tower"].push_back(result.timings.encode_ms - projector_ms);
    times["prefill"].push_back(result.timings.prefill_ms);
    const auto n_decoded = static_cast<double>(result.token_ids.size()) - 1;
    if (n_decoded > 0) times["decode"].push_back(result.timings.decode_ms / n_decoded);
    first_token.push_back(first_ms);
  }

  BenchReport report() {
    BenchReport out;
    out.n_prompt_tokens = options.prompt_tokens;
    out.n_image_tokens = plan.n_tokens;
    out.first_token_ms = median(first_token);
    out.peak_memory_bytes = peak_memory_bytes();
    out.kv_cache_bytes = engine.kv_cache_bytes();
    const auto add = [&](const char* name, std::int64_t n_items, const char* unit, const Cost& cost) {
      out.stages.push_back({name, median(times[name]), n_items, unit, cost});
    };
    const LanguageCost language(model.model(), options.kv_cache_dtype);
    // The projector's own share follows from its parameters; both zones together were counted.
    Cost projector;
    for (const auto& [name, size] : model.model().part_sizes().parts)
      if (name == "projector")
        projector = {.flops = 2.0 * static_cast<double>(size.n_parameters - size.n_int8_parameters) *
                              static_cast<double>(plan.n_tokens),
                     .int8_ops = 2.0 * static_cast<double>(size.n_int8_parameters) *
                                 static_cast<double>(plan.n_tokens),
                     .bytes = static_cast<double>(size.read_bytes)};
    Cost tower = encode_cost;
    const bool split = median(times["projector"]) > 0;
    if (split)
      tower += {.flops = -projector.flops, .int8_ops = -projector.int8_ops, .bytes = -projector.bytes};
    add("image decode", 1, "pictures", {});
    add("preprocess", 1, "pictures", {});
    add("tower", plan.n_tokens, "tokens", tower);
    if (split) add("projector", plan.n_tokens, "tokens", projector);
    add("prefill", options.prompt_tokens, "tokens", language.prefill(options.prompt_tokens));
    if (!times["decode"].empty())
      add("decode", 1, "tokens", language.decode(options.prompt_tokens + options.decode_tokens / 2));
    return out;
  }
};

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

BenchReport run_bench(LoadedModel& model, const BenchOptions& options) {
  EngineOptions engine_options;
  engine_options.max_context_tokens = options.prompt_tokens + options.decode_tokens + 1;
  engine_options.max_batch_tokens = std::max<std::int64_t>(1024, options.prompt_tokens);
  engine_options.max_sequences = 1;
  engine_options.kv_cache_dtype = options.kv_cache_dtype;
  Bench bench{model, options, make_test_jpeg(options.picture_width_px, options.picture_height_px),
              Engine(model, engine_options)};
  bench.warm_up();
  for (int i = 0; i < options.n_repeats; ++i) bench.run_once();
  return bench.report();
}

}  // namespace triptych::cli
