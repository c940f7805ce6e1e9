// triptych bench --serve-trace: many requests on one engine, in this process; and --make-trace, which writes
// down such requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/serve_trace.h"
#include "cli/flags.h"
#include "cli/prefix_cache_flags.h"

namespace CLI {
class App;
}

namespace triptych::cli {

/// Flags of bench, and what they ask for.
struct ServeFlags {
  std::string trace_file;
  std::optional<std::string> make_trace;
  TraceMix mix;
  std::string sides, prompt_range, answer_range;  // as given; empty: the mix's own
  int n_clients = 0;
  double rate = 0;
  bool sequential = false;
  int max_sequences = 0;  // 0: as many as clients, 16 where arrivals have times
  std::int64_t max_batch_tokens = 1024;
  std::int64_t kv_cache_tokens = 0;
  std::int64_t ctx_size_tokens = 0;
  PrefixCacheFlags prefix_cache;
  double visual_cache_gb = 0;
  int n_prepare_threads = 1;
  MediaFlags media;

  void add_to(CLI::App& app);
  bool wanted() const noexcept { return !trace_file.empty() || make_trace.has_value(); }
};

/// The mix that --make-trace and its flags describe.
TraceMix mix_of(const ServeFlags& flags, int n_requests);
/// The requests of --serve-trace. Throws Error naming the flag.
std::vector<TraceRequest> read_trace(const std::string& file);
/// "16 clients in a closed loop": when requests come.
std::string load_words(const ServeFlags& flags);
/// Throws Error(kInvalidArgument) when flags say more than one way of when they come.
void check_loads(const ServeFlags& flags);

/// What the rest of the command line says.
struct ServeSetting {
  std::function<std::unique_ptr<LoadedModel>(std::string& description)> make_model;
  const ModelFlags& model;
  std::string kv_cache_dtype;
  bool replay_steps = true;
  std::optional<std::string> html;
  bool json = false;
  int n_requests = 200;  // --requests
};

/// Returns the exit code: 1 when a request failed.
int bench_serve(ServeFlags flags, const ServeSetting& setting);

}  // namespace triptych::cli
