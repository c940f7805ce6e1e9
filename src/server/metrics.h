// What the server counts of itself, beside what the engine counts (engine/engine_metrics.h), and all of it in
// the text form of Prometheus. Names are vLLM's with this program's prefix where it has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/metrics_registry.h"
#include "server/engine_counts.h"

namespace triptych::server {

// Any thread.
class ServerMetrics {
 public:
  ServerMetrics();

  /// Where an engine shows what it does; it may not outlive this.
  Metrics& registry() noexcept { return registry_; }

  /// An answer that ended. `route` is one of a fixed set, so that clients cannot make series.
  void count_http(std::string_view route, int status, double seconds);
  /// A picture that was decoded, by its bytes as they were sent.
  void count_image(std::uint64_t n_bytes);
  /// A picture that was resized and normalised, because its rows were not at hand.
  void count_preprocessed();
  /// A request whose prompt and pictures are ready.
  void prepared(double media_s, std::size_t n_media, double prepare_s);
  /// A picture that was fetched from another host.
  void downloaded(double seconds, std::uint64_t n_bytes);
  /// A request as it was asked: how many answers of how many tokens.
  void asked(std::size_t n_answers, std::int64_t max_tokens);
  void count_image_tokens(std::int64_t n);

  struct Moment {
    EngineCounts engine;
    std::size_t n_preparing = 0;
    std::size_t n_in_flight = 0;
    std::size_t n_connections = 0;
    std::uint64_t n_accepted = 0, n_refused = 0, n_slow_readers = 0;
    std::string version;
  };
  std::string text(const Moment& now) const;

 private:
  MetricsRegistry registry_;
  Counter& images_;
  Counter& image_bytes_;
  Counter& preprocessed_;
  Counter& image_tokens_;
  Histogram& download_s_;
  Histogram& download_bytes_;
  Histogram& resolve_s_;
  Histogram& prepare_s_;
  Histogram& n_answers_;
  Histogram& max_tokens_;
};

}  // namespace triptych::server
