#include "benchmark/memory_workload.h"

#include <algorithm>
#include <map>
#include <random>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory_pool.h"
#include "benchmark/published_shapes.h"
#include "benchmark/test_jpeg.h"
#include "engine/engine.h"
#include "media/image_decode.h"

namespace triptych {
namespace {

constexpr int kPictureSizes_px[] = {224, 336, 384, 448, 512};

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
      for (const StepOutput& out : engine_.step())
        if (out.error) throw Error(out.error->code, out.error->message);
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
    while (engine_.has_work()) engine_.step();
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

}  // namespace triptych
