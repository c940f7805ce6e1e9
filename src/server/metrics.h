// What the server counts of itself, in the text form of Prometheus (version 0.0.4). Names are those of vLLM
// with this program's prefix, and the stages of a picture.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine_counts.h"

namespace triptych::server {

/// Observations by upper bounds. Any thread.
class LatencyHistogram {
 public:
  /// `bounds`: ascending, without infinity; borrowed.
  explicit LatencyHistogram(std::span<const double> bounds);
  void observe(double value) noexcept;
  /// The samples of `name`.
  void write(std::string& out, std::string_view name) const;

 private:
  std::span<const double> bounds_;
  std::vector<std::atomic<std::uint64_t>> buckets_;  // not cumulated; the last is above all bounds
  std::atomic<double> sum_{0};
};

class ServerMetrics {
 public:
  ServerMetrics();

  std::atomic<std::uint64_t> prompt_tokens{0}, generation_tokens{0}, image_tokens{0}, cached_tokens{0};
  std::atomic<std::uint64_t> images{0}, image_bytes{0};
  LatencyHistogram time_to_first_token, inter_token_latency, e2e_latency, queue_time;
  LatencyHistogram image_decode, prepare, image_encode, prefill, decode;

  /// An answer that ended: "stop", "length", "tool_calls", "cancelled", "error".
  void count_finished(std::string_view reason);
  /// `route` is one of a fixed set, so that clients cannot make series.
  void count_http(std::string_view route, int status);

  struct Moment {
    EngineCounts engine;
    std::size_t n_preparing = 0;
    std::size_t n_connections = 0;
    std::uint64_t n_accepted = 0, n_refused = 0, n_slow_readers = 0;
    std::string version;
  };
  std::string text(const Moment& now) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t, std::less<>> finished_;
  std::map<std::pair<std::string, int>, std::uint64_t> http_;
};

}  // namespace triptych::server
