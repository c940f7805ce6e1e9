// Drives any server that speaks OpenAI's chat completions over HTTP/1.1 (RFC 9112): in a closed loop (so many
// clients, each asks again when it has its answer) or at the times of a trace, on as many connections as
// are needed. One thread, so that what is measured is little disturbed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/serve_driver.h"

namespace triptych {

struct LoadTarget {
  std::string host;  // a name or an address
  int port = 80;
  std::string prefix;  // of all paths: "" or "/gateway"
};
/// "http://HOST[:PORT][/PREFIX][/v1]"; IPv6 addresses in brackets. Throws Error(kInvalidArgument) naming what
/// was expected.
LoadTarget parse_load_url(std::string_view url);

struct LoadTestOptions {
  int n_clients = 0;         // of a closed loop; 0: requests come when `arrivals_ms` says
  double timeout_s = 600;    // of one request
  std::string api_key = {};  // sent as a bearer token
  std::function<void(std::size_t n_done)> on_progress = {};
};

/// What became of the requests, as ServeRun has it: times count from a request's arrival, tokens are pieces
/// of text with their own event, numbers of tokens are the server's `usage`. A request that was not answered
/// whole has an error.
struct LoadRun {
  ServeRun run;                // requests, wall_ms, cpu_ms (of this process)
  std::vector<int> statuses;   // of HTTP by request; 0: no answer came
  std::size_t n_connects = 0;  // connections that were made
};

/// Sends each of `bodies`. Throws Error(kIo) when the host cannot be resolved, kInvalidArgument for options
/// out of range. `arrivals_ms` has as many, or none in a closed loop.
LoadRun run_load(const LoadTarget& target, const std::vector<std::string>& bodies,
                 const std::vector<double>& arrivals_ms, const LoadTestOptions& options);

/// The first name that GET /v1/models gives. Throws Error(kIo) when there is no such answer.
std::string first_served_model(const LoadTarget& target, const LoadTestOptions& options);

}  // namespace triptych
