// Traces of requests as files, JSON Lines (docs/json.md): who asks what, how long, about which pictures, and
// when. Pictures and prompts are described by their size, so that a trace is small and holds nobody's data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

/// A picture to be made up in this size, or a file.
struct TracePicture {
  int width_px = 0, height_px = 0;  // 0: a file
  std::int64_t group = 0;           // pictures of one size and group have the same pixels
  std::string file = {};            // a relative name is relative to the trace's folder

  friend bool operator==(const TracePicture&, const TracePicture&) = default;
};

struct TraceRequest {
  double arrival_ms = 0;  // since the begin of the trace
  std::vector<TracePicture> pictures;
  std::int64_t prompt_tokens = 0;  // of text, beside the pictures; 0: `prompt` says what
  std::string prompt = {};         // the question itself, for models with a tokenizer
  std::int64_t answer_tokens = 1;  // exactly so many
  std::int64_t prefix_group = 0;   // requests of one group begin with the same tokens
  std::int64_t prefix_tokens = 0;  // so many of prompt_tokens; they stand before the pictures
  std::string tenant = {};
  int priority = 0;

  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

/// One line a request.
std::string trace_text(const std::vector<TraceRequest>& requests);
/// Blank lines are skipped. Throws Error(kInvalidFile) naming `name`, the line, the member and what was
/// expected; an empty trace is an error.
std::vector<TraceRequest> parse_trace(std::string_view text, const std::string& name);

/// What make_trace draws from; ranges include both ends.
struct TraceMix {
  std::uint64_t seed = 0;
  int n_requests = 96;
  std::vector<int> sides_px = {224, 336, 448, 560, 672};  // width and height are drawn one by one
  std::pair<std::int64_t, std::int64_t> prompt_tokens = {10, 400};
  std::pair<std::int64_t, std::int64_t> answer_tokens = {16, 128};
  double text_share = 0;           // of the requests, without a picture
  double repeat_share = 0;         // of the pictures, those that were shown before
  std::int64_t prefix_tokens = 0;  // that all requests of a tenant begin with, beside prompt_tokens
  int n_tenants = 1;
  double requests_per_s = 0;  // Poisson arrivals; 0: all come at once
};

/// The same requests on every machine for equal mixes.
std::vector<TraceRequest> make_trace(const TraceMix& mix);

/// Replaces the arrivals by those of a Poisson process.
void set_poisson_arrivals(std::vector<TraceRequest>& requests, double requests_per_s, std::uint64_t seed);

}  // namespace triptych
