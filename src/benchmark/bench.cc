#include "benchmark/bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/profile.h"
#include "benchmark/test_jpeg.h"
#include "media/image_decode.h"
#include "report/machine.h"

namespace triptych {
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

SamplingParams answer_of(std::int64_t n_tokens) {
  SamplingParams out;
  out.max_tokens = n_tokens;
  out.ignore_eos = true;
  return out;
}

struct Bench {
  LoadedModel& model;
  const BenchOptions& options;
  std::vector<std::byte> jpeg;
  std::map<std::string, std::vector<double>> times = {};  // by stage
  std::vector<double> first_token = {}, question_first_token = {};
  Cost encode_cost = {};  // of tower and projector together
  MediaPlan plan = {};
  BenchReport out = {};

  MediaItem prepare_picture(std::map<std::string, std::vector<double>>& to) {
    std::vector<Image> frames;
    MediaItem item;
    to["image decode"].push_back(timed_ms([&] { frames.push_back(decode_image(jpeg, {}, "test picture")); }));
    to["preprocess"].push_back(timed_ms([&] {
      item.plan = model.model().plan_media({.width_px = frames[0].width_px, .height_px = frames[0].height_px},
                                           options.media);
      item.pixels = model.model().preprocess(frames, item.plan, &model.media_pool());
      item.image_tokens = options.media.image_tokens;
    }));
    return item;
  }

  // `n_text` text ids, other ones for each seed, behind the pictures.
  PreparedRequest make_request(std::vector<MediaItem> items, std::int64_t n_text, std::int64_t seed) const {
    PreparedRequest request;
    const ModelInfo& info = model.info();
    std::vector<MediaPlan> plans;
    std::vector<std::int32_t> ids;
    for (const MediaItem& item : items) {
      ids.push_back(info.image_token_id);
      plans.push_back(item.plan);
    }
    for (std::int64_t i = 0; i < n_text; ++i) {
      auto id =
          static_cast<std::int32_t>((7 + 13 * i + 31 * seed) % std::min<std::int64_t>(info.vocab_size, 1000));
      if (id == info.image_token_id || id == info.video_token_id) id = 0;
      ids.push_back(id);
    }
    request.token_ids = ids;
    request.layout = model.model().expand_prompt(ids, plans);
    request.media = std::move(items);
    return request;
  }

  // The long prompt: as many text ids as its length leaves beside the picture.
  PreparedRequest long_request(MediaItem item) const {
    const std::int64_t n_text = options.prompt_tokens - item.plan.n_prompt_tokens;
    if (n_text < 1)
      fail(ErrorCode::kInvalidArgument, "prompt_tokens {}: the picture alone takes {}", options.prompt_tokens,
           item.plan.n_prompt_tokens);
    std::vector<MediaItem> items;
    items.push_back(std::move(item));
    return make_request(std::move(items), n_text, 0);
  }

  PreparedRequest short_request(MediaItem item) const {
    std::vector<MediaItem> items;
    items.push_back(std::move(item));
    return make_request(std::move(items), options.question_tokens, 0);
  }

  EngineOptions engine_options(std::int64_t n_prompt) const {
    EngineOptions out_options;
    out_options.max_context_tokens = n_prompt + options.decode_tokens + 1;
    if (out_options.max_context_tokens > model.info().max_context_tokens)
      fail(ErrorCode::kInvalidArgument,
           "prompt_tokens and decode_tokens: {} together, the model was trained for {}",
           out_options.max_context_tokens, model.info().max_context_tokens);
    out_options.max_batch_tokens = std::max<std::int64_t>(1024, n_prompt);
    out_options.max_sequences = 1;
    out_options.kv_cache_dtype = options.kv_cache_dtype;
    out_options.replay_steps = options.replay_steps;
    return out_options;
  }

  void count_encoding(Engine& engine, MediaItem item) {
    CostObserver observer(model.backend().attends_in_int8(std::nullopt));
    std::vector<MediaItem> items;
    items.push_back(std::move(item));
    engine.encode_media(items, &observer);
    encode_cost = observer.cost();
  }

  // From the encoded picture on. Returns when the first token came.
  GenerationResult run_picture(Engine& engine, bool long_prompt,
                               std::map<std::string, std::vector<double>>& to, std::vector<double>& first) {
    const Clock::time_point start = Clock::now();
    MediaItem item = prepare_picture(to);
    double first_ms = -1;
    PreparedRequest request = long_prompt ? long_request(std::move(item)) : short_request(std::move(item));
    GenerationResult result = engine.generate(
        std::move(request), answer_of(long_prompt ? options.decode_tokens : 1), [&](const TokenEvent&) {
          if (first_ms < 0) first_ms = ms_since(start);
          return true;
        });
    first.push_back(first_ms);
    return result;
  }

  void run_answer(Engine& engine) {
    set_profile_mode(ProfileMode::kSummary);
    const GenerationResult result = run_picture(engine, true, times, first_token);
    const double projector_ms = zone_ms("projector");
    set_profile_mode(ProfileMode::kOff);
    times["projector"].push_back(projector_ms);
    times["tower"].push_back(result.timings.encode_ms - projector_ms);
    times["prefill"].push_back(result.timings.prefill_ms);
    const auto n_decoded = static_cast<double>(result.token_ids.size()) - 1;
    if (n_decoded > 0) times["decode"].push_back(result.timings.decode_ms / n_decoded);
  }

  // A measurement of requests that failed is none.
  static void step(Engine& engine) {
    for (const StepOutput& out : engine.step())
      if (out.error) throw Error(out.error->code, out.error->message);
  }

  // One more answer under an observer. Apart from the others, which it must not slow down.
  std::vector<PartTiming> run_parts(Engine& engine) {
    std::map<std::string, std::vector<double>> unused;
    PreparedRequest request = long_request(prepare_picture(unused));
    PartRecorder recorder(model.model().part_sizes(), model.backend());
    engine.set_observer(&recorder);
    if (options.timeline) set_profile_mode(ProfileMode::kTrace);
    int n_decoded = -1;  // the first token comes from the prompt
    engine.submit(std::move(request), answer_of(options.decode_tokens), [&](const TokenEvent&) {
      recorder.begin_decode();
      ++n_decoded;
      return true;
    });
    while (engine.has_work()) step(engine);
    if (options.timeline) out.timeline = profile_events();
    set_profile_mode(ProfileMode::kOff);
    engine.set_observer(nullptr);
    return recorder.parts(1, n_decoded);
  }

  // Medians of several; every answer has the same parts.
  void run_all_parts(Engine& engine) {
    std::vector<std::vector<double>> ms;
    for (int i = 0; i < options.n_repeats; ++i) {
      out.parts = run_parts(engine);
      ms.resize(out.parts.size());
      for (std::size_t p = 0; p < out.parts.size(); ++p) ms[p].push_back(out.parts[p].ms);
    }
    for (std::size_t p = 0; p < out.parts.size(); ++p) out.parts[p].ms = median(ms[p]);
  }

  // Everything that shows a picture.
  void run_pictures() {
    std::map<std::string, std::vector<double>> unused;
    std::vector<double> unused_first;
    MediaItem item = prepare_picture(unused);
    plan = item.plan;
    out.n_question_tokens = plan.n_prompt_tokens + options.question_tokens;
    const std::int64_t longest =
        std::max(options.answer ? options.prompt_tokens : 0, options.question ? out.n_question_tokens : 0);
    const EngineOptions options_of_engine = engine_options(longest);
    if (options.answer)
      static_cast<void>(long_request(prepare_picture(unused)));  // refuses before it allocates
    Engine engine(model, options_of_engine);
    count_encoding(engine, std::move(item));
    out.kv_cache_bytes = engine.kv_cache_bytes();
    if (options.answer) {
      engine.generate(long_request(prepare_picture(unused)), answer_of(2));
      for (int i = 0; i < options.n_repeats; ++i) run_answer(engine);
    }
    if (options.question) {
      run_picture(engine, false, unused, unused_first);
      for (int i = 0; i < options.n_repeats; ++i) run_picture(engine, false, unused, question_first_token);
    }
    if (options.answer && (options.parts || options.timeline)) run_all_parts(engine);
  }

  // One round of all sequences; adds the mean time of a step in which all of them decode.
  void run_batch_round(Engine& engine, std::int64_t n_prompt, std::int64_t n_tokens,
                       std::vector<double>& to) {
    std::vector<std::int64_t> n_got(static_cast<std::size_t>(options.n_batch), 0);
    for (std::size_t i = 0; i < n_got.size(); ++i)
      engine.submit(make_request({}, n_prompt, static_cast<std::int64_t>(i)), answer_of(n_tokens),
                    [&n_got, i](const TokenEvent&) {
                      ++n_got[i];
                      return true;
                    });
    double total_ms = 0;
    int n_steps = 0;
    while (engine.has_work()) {
      const bool all_decode =
          std::all_of(n_got.begin(), n_got.end(), [&](std::int64_t n) { return n >= 1 && n < n_tokens; });
      const double ms = timed_ms([&] { step(engine); });
      if (!all_decode) continue;
      total_ms += ms;
      ++n_steps;
    }
    if (n_steps > 0) to.push_back(total_ms / n_steps);
  }

  void run_batch() {
    // All start to decode together only when the last prompt is done: the first ones wrote one token for each
    // prompt behind them.
    const std::int64_t n_tokens = options.decode_tokens + options.n_batch;
    EngineOptions batch_options = engine_options(options.prompt_tokens + options.n_batch);
    batch_options.max_sequences = options.n_batch;
    batch_options.kv_cache_tokens = options.n_batch * (batch_options.max_context_tokens + 64);
    Engine engine(model, batch_options);
    out.kv_cache_bytes = std::max(out.kv_cache_bytes, engine.kv_cache_bytes());
    std::vector<double> unused;
    run_batch_round(engine, std::min<std::int64_t>(32, options.prompt_tokens), 4 + options.n_batch, unused);
    for (int i = 0; i < options.n_repeats; ++i)
      run_batch_round(engine, options.prompt_tokens, n_tokens, times["batch"]);
  }

  // Requests about one picture, whose rows are kept from a request before: what is measured is the language
  // model and how many of them its cache holds at once. From the first step to the last token.
  void run_picture_batch() {
    std::map<std::string, std::vector<double>> unused;
    plan = prepare_picture(unused).plan;
    const std::int64_t n_prompt = plan.n_prompt_tokens + options.question_tokens;
    EngineOptions batch_options = engine_options(n_prompt);
    batch_options.max_sequences = options.n_picture_batch;
    batch_options.kv_cache_tokens =
        options.kv_cache_tokens > 0
            ? options.kv_cache_tokens
            : options.n_picture_batch * (batch_options.max_context_tokens + kBlockTokens);
    batch_options.vision_embedding_cache_bytes = std::size_t{1} << 30;
    Engine engine(model, batch_options);
    out.kv_cache_bytes = std::max(out.kv_cache_bytes, engine.kv_cache_bytes());
    for (int round = 0; round <= options.n_repeats; ++round) {
      for (int i = 0; i < options.n_picture_batch; ++i) {
        std::vector<MediaItem> items;
        items.push_back(prepare_picture(unused));
        items.front().fingerprint = {1, 1};
        engine.submit(make_request(std::move(items), options.question_tokens, i),
                      answer_of(options.decode_tokens));
        if (round == 0) break;  // warms up, and the tower sees the picture
      }
      const double ms = timed_ms([&] {
        while (engine.has_work()) step(engine);
      });
      if (round > 0) times["picture batch"].push_back(ms);
    }
  }

  void add(const char* name, const std::string& key, std::int64_t n_items, const char* unit,
           const Cost& cost) {
    const std::vector<double>& ms = times[key];
    if (ms.empty()) return;
    const auto [low, high] = std::minmax_element(ms.begin(), ms.end());
    out.stages.push_back({name, median(ms), *low, *high, n_items, unit, cost});
  }

  void add_picture_stages() {
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
    add("image decode", "image decode", 1, "pictures", {});
    add("preprocess", "preprocess", 1, "pictures", {});
    add("tower", "tower", plan.n_tokens, "tokens", tower);
    if (split) add("projector", "projector", plan.n_tokens, "tokens", projector);
  }

  BenchReport report() {
    out.n_prompt_tokens = options.prompt_tokens;
    out.n_image_tokens = plan.n_tokens;
    out.first_token_ms = median(first_token);
    out.question_first_token_ms = median(question_first_token);
    out.peak_memory_bytes = peak_memory_bytes();
    for (const auto& [name, size] : model.model().part_sizes().parts)
      out.weight_bytes.emplace_back(name, size.read_bytes);
    const LanguageCost language(model.model(), options.kv_cache_dtype,
                                model.backend().attends_in_int8(options.kv_cache_dtype));
    add_picture_stages();
    const std::int64_t n = options.prompt_tokens;
    add("prefill", "prefill", n, "tokens", language.prefill(n));
    add("decode", "decode", 1, "tokens", language.decode(n + options.decode_tokens / 2));
    add(fmt::format("decode of {}", options.n_batch).c_str(), "batch", options.n_batch, "tokens",
        language.decode(n + (options.decode_tokens + options.n_batch) / 2, options.n_batch));
    add(fmt::format("{} answers", options.n_picture_batch).c_str(), "picture batch",
        options.n_picture_batch * options.decode_tokens, "tokens", {});
    out.n_kept_image_tokens = options.media.image_tokens.n_kept(plan.n_tokens);
    return std::move(out);
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
  Bench bench{model, options, make_test_jpeg(options.picture_width_px, options.picture_height_px)};
  if (options.answer || options.question) bench.run_pictures();
  if (options.n_batch > 0) bench.run_batch();
  if (options.n_picture_batch > 0) bench.run_picture_batch();
  return bench.report();
}

ActivationQuantMap calibrate_on_test_picture(LoadedModel& model, const BenchOptions& options) {
  Bench bench{model, options, make_test_jpeg(options.picture_width_px, options.picture_height_px)};
  std::map<std::string, std::vector<double>> unused;
  std::vector<MediaItem> items;
  items.push_back(bench.prepare_picture(unused));
  Engine engine(model, bench.engine_options(1));
  InputRanges ranges;
  engine.encode_media(items, &ranges);
  ranges.begin_histograms();
  engine.encode_media(items, &ranges);
  return ranges.activation_quants(model.model().part_sizes());
}

}  // namespace triptych
