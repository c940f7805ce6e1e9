#include "cli/bench_memory.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "benchmark/allocation_file.h"
#include "benchmark/memory_replay.h"
#include "benchmark/replay_table.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output_file.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

std::string bytes(std::size_t n) { return format_bytes(static_cast<double>(n)); }

std::vector<AllocationEvent> read_trace(const std::string& file, JsonOut& out) {
  std::vector<AllocationEvent> events = read_allocations(file);
  if (events.empty())
    fail(ErrorCode::kInvalidFile, "--replay-allocations: {}: it holds no allocations", file);
  out["trace"] = file;
  return events;
}

std::vector<AllocationEvent> record_trace(const MemoryWorkload& workload, const std::string& shape,
                                          const LoadOptions& load, bool json, JsonOut& out) {
  int kv_scale = 1;
  const Json config = shallow_config(shape, kv_scale);
  const auto model = LoadedModel::with_random_weights(config, load.weight_dtype.value_or(DType::kF16), load);
  RecordedWork work = record_work(*model, workload, kv_scale);
  out["shapes"] = shape;
  out["requests"] = workload.n_requests;
  out["pool_allocations_per_warm_step"] = work.pool_allocations_per_step;
  out["arena_allocations_per_warm_step"] = work.arena_allocations_per_step;
  if (!json)
    std::printf(
        "%s, one layer of %d (keys and values as of all), random weights: %d requests, %d at once, pictures "
        "of "
        "224 to 512 pixels\na warm decode step takes %.2f blocks from the pool and %.2f chunks for its "
        "arena; "
        "the pool holds %s in blocks, %s with what it keeps\n",
        shape.c_str(), kv_scale, workload.n_requests, workload.max_sequences, work.pool_allocations_per_step,
        work.arena_allocations_per_step, bytes(work.pool_used_bytes).c_str(),
        bytes(work.pool_reserved_bytes).c_str());
  return std::move(work.events);
}

// This program again, which then goes into bench_memory's first branch.
std::vector<std::string> replay_command(const std::string& trace_file, const std::string& allocator) {
  return {"triptych", "bench", "--memory-replay", trace_file, "--allocator", allocator};
}

JsonOut replay_all(const std::string& title, const std::vector<AllocationEvent>& events, bool json) {
  std::vector<ReplayResult> results;
  for (const std::string& allocator : replay_allocators())
    results.push_back(replay_apart(events, allocator, replay_command));
  JsonOut out = {{"name", title}, {"results", JsonOut::array()}};
  for (const ReplayResult& r : results) out["results"].push_back(to_json(r));
  if (!json) std::fputs(replay_table(title, results).c_str(), stdout);
  return out;
}

}  // namespace

void MemoryFlags::add_to(CLI::App& app) {
  app.add_flag(
      "--memory", memory,
      "Record the allocations of many answers (with --shapes) and replay them with malloc, jemalloc, "
      "mimalloc and the pool");
  app.add_option("--requests", workload.n_requests, "Requests of --memory, --make-trace and --serve")
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
  JsonOut out;
  const std::vector<AllocationEvent> recorded =
      flags.trace_file.empty()
          ? record_trace(flags.workload, shape.empty() ? "qwen2-vl-2b" : shape, load, json, out)
          : read_trace(flags.trace_file, out);
  if (flags.write_trace) write_output("--trace-allocations", *flags.write_trace, allocation_text(recorded));
  const std::pair<const char*, std::vector<AllocationEvent>> traces[] = {
      {"as the engine allocates (tensors in arenas)", with_arenas(recorded)},
      {"every tensor by itself", without_arenas(recorded)}};
  out["traces"] = JsonOut::array();
  for (const auto& [title, events] : traces)
    if (!events.empty()) out["traces"].push_back(replay_all(title, events, json));
  if (json) print_json(json_document("bench_memory", out));
  return kExitOk;
}

}  // namespace triptych::cli
