#include "cli/memory_report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/memory_pool.h"
#include "cli/allocation_file.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/published_shapes.h"
#include "cli/text_table.h"
#include "engine/engine.h"
#include "media/image_decode.h"

namespace triptych::cli {
namespace {

constexpr int kPictureSizes_px[] = {224, 336, 384, 448, 512};
constexpr double kMaxFragmentation = 0.05;
constexpr double kMinSaving = 0.20;

class Work {
 public:
  Work(LoadedModel& model, const MemoryWorkload& workload)
      : model_(model), workload_(workload), rng_(workload.seed), engine_(model, options(workload)) {}

  void run() {
    int n_submitted = 0;
    std::vector<Engine::RequestId> open;
    do {
      // Two wait while the others run, as behind a server.
      while (n_submitted < workload_.n_requests &&
             static_cast<int>(open.size()) < workload_.max_sequences + 2) {
        open.push_back(engine_.submit(make_request(), answer_of(1 + number(32))));
        ++n_submitted;
      }
      engine_.step();
      std::erase_if(open, [&](Engine::RequestId id) { return engine_.take_result(id).has_value(); });
    } while (!open.empty() || n_submitted < workload_.n_requests);
  }

  // Allocations per step while one sequence decodes.
  void count_warm_steps(RecordedWork& out) {
    constexpr int kWarm = 8;
    constexpr int kSteps = 32;
    const auto id = engine_.submit(make_request(), answer_of(kWarm + kSteps + 8));
    for (int i = 0; i < kWarm; ++i) engine_.step();
    const std::int64_t pool = MemoryPool::process().stats().n_allocations;
    const std::int64_t arena = engine_.n_arena_allocations();
    for (int i = 0; i < kSteps; ++i) engine_.step();
    out.pool_allocations_per_step =
        static_cast<double>(MemoryPool::process().stats().n_allocations - pool) / kSteps;
    out.arena_allocations_per_step = static_cast<double>(engine_.n_arena_allocations() - arena) / kSteps;
    engine_.cancel(id);
    while (engine_.step()) {
    }
    engine_.take_result(id);
  }

 private:
  static EngineOptions options(const MemoryWorkload& workload) {
    EngineOptions out;
    out.max_context_tokens = 2048;
    out.kv_cache_tokens = 2048 * workload.max_sequences;
    out.max_sequences = workload.max_sequences;
    out.replay_steps = false;  // a record takes the arena in one piece: its tensors would not be seen
    return out;
  }
  static SamplingParams answer_of(std::int64_t n_tokens) {
    SamplingParams out;
    out.max_tokens = n_tokens;
    out.ignore_eos = true;
    return out;
  }
  std::int64_t number(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }

  const std::vector<std::byte>& jpeg(int width_px, int height_px) {
    auto& file = jpegs_[{width_px, height_px}];
    if (file.empty()) file = make_test_jpeg(width_px, height_px);
    return file;
  }

  PreparedRequest make_request() {
    const int width_px = kPictureSizes_px[number(5)];
    const int height_px = number(2) == 0 ? width_px : kPictureSizes_px[number(5)];
    PreparedRequest out;
    MediaItem item;
    std::vector<Image> frames;
    frames.push_back(decode_image(jpeg(width_px, height_px), {}, "test picture"));
    item.plan = model_.model().plan_media({.width_px = width_px, .height_px = height_px}, {});
    item.pixels = model_.model().preprocess(frames, item.plan, &model_.media_pool());
    const ModelInfo& info = model_.info();
    std::vector<std::int32_t> ids{info.image_token_id};
    for (std::int64_t i = 8 + number(400); i > 0; --i) {
      auto id = static_cast<std::int32_t>(number(1000));
      if (id == info.image_token_id || id == info.video_token_id) id = 0;
      ids.push_back(id);
    }
    const MediaPlan plans[] = {item.plan};
    out.token_ids = ids;
    out.layout = model_.model().expand_prompt(ids, plans);
    out.media.push_back(std::move(item));
    return out;
  }

  LoadedModel& model_;
  const MemoryWorkload workload_;
  std::mt19937_64 rng_;
  Engine engine_;
  std::map<std::pair<int, int>, std::vector<std::byte>> jpegs_;
};

std::vector<AllocationEvent> only(const std::vector<AllocationEvent>& events, AllocationKind unwanted) {
  constexpr std::uint32_t kGone = ~std::uint32_t{0};
  std::vector<AllocationEvent> out;
  std::vector<std::uint32_t> number;
  std::uint32_t n = 0;
  for (AllocationEvent e : events) {
    if (e.size_bytes > 0) number.push_back(e.kind == unwanted ? kGone : n++);
    if (e.kind == unwanted) continue;
    e.block = number[e.block];
    out.push_back(e);
  }
  return out;
}

std::string bytes(std::size_t n) { return format_bytes(static_cast<double>(n)); }

void print_results(const std::string& title, const std::vector<ReplayResult>& results) {
  std::printf("\n%s: %s calls, at most %s in use\n", title.c_str(),
              format_count(static_cast<double>(results.front().n_calls)).c_str(),
              bytes(results.front().used_bytes).c_str());
  TextTable table({{"allocator", Align::kLeft},
                   {"resident at peak"},
                   {"fragmentation"},
                   {"most resident"},
                   {"of malloc's"},
                   {"left at the end"},
                   {"a call"},
                   {"all, touched"}});
  const ReplayResult& malloc = results.front();
  for (const ReplayResult& r : results) {
    const std::string name = r.version.empty() ? r.allocator : r.allocator + " " + r.version;
    if (!r.problem.empty()) {
      table.add_row({name, r.problem});
      continue;
    }
    table.add_row({name, bytes(r.at_peak_bytes), format_percent(r.fragmentation()), bytes(r.peak_bytes),
                   malloc.peak_bytes > 0 ? format_percent(static_cast<double>(r.peak_bytes) /
                                                          static_cast<double>(malloc.peak_bytes))
                                         : "-",
                   bytes(r.end_bytes), fmt::format("{:.0f} ns", r.ns_per_call), format_ms(r.total_ms)});
  }
  std::fputs(table.render(2).c_str(), stdout);
  const ReplayResult& pool = results.back();
  const double saving = malloc.peak_bytes > 0 ? 1 - static_cast<double>(pool.peak_bytes) /
                                                        static_cast<double>(malloc.peak_bytes)
                                              : 0;
  std::printf("  pool: fragmentation %s the goal of %s; %s below malloc's peak, goal %s\n",
              pool.fragmentation() <= kMaxFragmentation ? "meets" : "misses",
              format_percent(kMaxFragmentation, 0).c_str(), format_percent(saving).c_str(),
              format_percent(kMinSaving, 0).c_str());
}

}  // namespace

RecordedWork record_work(LoadedModel& model, const MemoryWorkload& workload, int kv_scale) {
  RecordedWork out;
  Work work(model, workload);
  {
    const AllocationRecorder recorder;
    work.run();
    out.events = recorder.events();
  }
  for (AllocationEvent& e : out.events)
    if (e.kind == AllocationKind::kKvPage) e.size_bytes *= static_cast<std::uint64_t>(kv_scale);
  const MemoryPoolStats stats = MemoryPool::process().stats();
  out.pool_used_bytes = stats.granted_bytes;
  out.pool_reserved_bytes = stats.reserved_bytes;
  work.count_warm_steps(out);
  return out;
}

Json shallow_config(const std::string& shape, int& kv_scale) {
  Json config = published_config(shape, 1);
  kv_scale = language_layers(published_config(shape)).value_or(1);
  if (const auto vision = config.find("vision_config"); vision != config.end())
    for (const char* depth : {"depth", "num_hidden_layers"})
      if (vision->contains(depth)) (*vision)[depth] = 2;
  if (const auto vision = config.find("vision_config");
      vision != config.end() && vision->contains("fullatt_block_indexes"))
    (*vision)["fullatt_block_indexes"] = {1};
  return config;
}

std::vector<AllocationEvent> with_arenas(const std::vector<AllocationEvent>& events) {
  return only(events, AllocationKind::kTensor);
}
std::vector<AllocationEvent> without_arenas(const std::vector<AllocationEvent>& events) {
  return only(events, AllocationKind::kChunk);
}

void MemoryFlags::add_to(CLI::App& app) {
  app.add_flag(
      "--memory", memory,
      "Record the allocations of many answers (with --shapes) and replay them with malloc, jemalloc, "
      "mimalloc and the pool");
  app.add_option("--requests", workload.n_requests, "Requests of --memory")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--trace-allocations", write_trace, "Keep the record of --memory in this file")
      ->type_name("FILE");
  app.add_option("--replay-allocations", trace_file, "Replay such a file instead of recording")
      ->type_name("FILE");
  app.add_option("--memory-replay", replay_file)->group("");  // how the program calls itself
  app.add_option("--allocator", allocator)->group("")->check(CLI::IsMember(replay_allocators()));
}

int bench_memory(const MemoryFlags& flags, const std::string& shape, const LoadOptions& load, bool json) {
  if (!flags.replay_file.empty()) {
    print_json(to_json(replay_here(read_allocations(flags.replay_file), flags.allocator)), false);
    return kExitOk;
  }
  if (flags.write_trace)
    check_output("--trace-allocations", *flags.write_trace, {{"--replay-allocations", flags.trace_file}});
  RecordedWork work;
  JsonOut out;
  if (!flags.trace_file.empty()) {
    work.events = read_allocations(flags.trace_file);
    if (work.events.empty())
      fail(ErrorCode::kInvalidFile, "--replay-allocations: {}: it holds no allocations", flags.trace_file);
    out["trace"] = flags.trace_file;
  } else {
    const std::string name = shape.empty() ? "qwen2-vl-2b" : shape;
    int kv_scale = 1;
    const Json config = shallow_config(name, kv_scale);
    const auto model =
        LoadedModel::with_random_weights(config, load.weight_dtype.value_or(DType::kF16), load);
    work = record_work(*model, flags.workload, kv_scale);
    out["shapes"] = name;
    out["requests"] = flags.workload.n_requests;
    out["pool_allocations_per_warm_step"] = work.pool_allocations_per_step;
    out["arena_allocations_per_warm_step"] = work.arena_allocations_per_step;
    if (!json)
      std::printf(
          "%s, one layer of %d (keys and values as of all), random weights: %d requests, %d at once, "
          "pictures of "
          "224 to 512 pixels\na warm decode step takes %.2f blocks from the pool and %.2f chunks for its "
          "arena; "
          "the pool holds %s in blocks, %s with what it keeps\n",
          name.c_str(), kv_scale, flags.workload.n_requests, flags.workload.max_sequences,
          work.pool_allocations_per_step, work.arena_allocations_per_step,
          bytes(work.pool_used_bytes).c_str(), bytes(work.pool_reserved_bytes).c_str());
  }
  if (flags.write_trace)
    write_output("--trace-allocations", *flags.write_trace, allocation_text(work.events));
  const std::pair<const char*, std::vector<AllocationEvent>> traces[] = {
      {"as the engine allocates (tensors in arenas)", with_arenas(work.events)},
      {"every tensor by itself", without_arenas(work.events)}};
  out["traces"] = JsonOut::array();
  for (const auto& [title, events] : traces) {
    if (events.empty()) continue;
    std::vector<ReplayResult> results;
    for (const std::string& allocator : replay_allocators())
      results.push_back(replay_apart(events, allocator));
    JsonOut one = {{"name", title}, {"results", JsonOut::array()}};
    for (const ReplayResult& r : results) one["results"].push_back(to_json(r));
    out["traces"].push_back(std::move(one));
    if (!json) print_results(title, results);
  }
  if (json) print_json(out);
  return kExitOk;
}

}  // namespace triptych::cli
