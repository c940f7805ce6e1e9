#include "server/metrics.h"

#include <fmt/core.h>

#include <algorithm>

namespace triptych::server {
namespace {

constexpr std::array kShort_s = {0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                 0.25,  0.5,   1.0,   2.5,  5.0,  10.0, 20.0, 40.0, 80.0};
constexpr std::array kLong_s = {0.01, 0.05, 0.1,  0.25, 0.5,  1.0,   2.5,
                                5.0,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0};

void head(std::string& out, std::string_view name, std::string_view kind, std::string_view help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

template <typename T>
void value(std::string& out, std::string_view name, std::string_view kind, std::string_view help, T now) {
  head(out, name, kind, help);
  out += fmt::format("{} {}\n", name, now);
}

}  // namespace

LatencyHistogram::LatencyHistogram(std::span<const double> bounds)
    : bounds_(bounds), buckets_(bounds.size() + 1) {}

void LatencyHistogram::observe(double value) noexcept {
  if (!(value == value)) return;
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  double before = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(before, before + value, std::memory_order_relaxed)) {
  }
}

void LatencyHistogram::write(std::string& out, std::string_view name) const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    count += buckets_[i].load(std::memory_order_relaxed);
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], count);
  }
  count += buckets_.back().load(std::memory_order_relaxed);
  out += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count,
                     sum_.load(std::memory_order_relaxed));
}

ServerMetrics::ServerMetrics()
    : time_to_first_token(kShort_s),
      inter_token_latency(kShort_s),
      e2e_latency(kLong_s),
      queue_time(kLong_s),
      image_decode(kShort_s),
      prepare(kShort_s),
      image_encode(kShort_s),
      prefill(kLong_s),
      decode(kLong_s) {}

void ServerMetrics::count_finished(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++finished_[std::string(reason)];
}

void ServerMetrics::count_http(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{std::string(route), status}];
}

std::string ServerMetrics::text(const Moment& now) const {
  std::string out;
  const auto counter = [&](std::string_view name, std::string_view help, auto n) {
    value(out, name, "counter", help, n);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, auto n) {
    value(out, name, "gauge", help, n);
  };
  const auto histogram = [&](std::string_view name, std::string_view help, const LatencyHistogram& of) {
    head(out, name, "histogram", help);
    of.write(out, name);
  };
  head(out, "triptych_build_info", "gauge", "The version that runs.");
  out += fmt::format("triptych_build_info{{version=\"{}\"}} 1\n", now.version);
  counter("triptych_prompt_tokens_total", "Tokens of prompts, pictures included.", prompt_tokens.load());
  counter("triptych_generation_tokens_total", "Tokens of answers.", generation_tokens.load());
  counter("triptych_image_tokens_total", "Tokens of prompts that stood for pictures.", image_tokens.load());
  counter("triptych_prompt_tokens_cached_total", "Tokens of prompts found in the prefix cache.",
          cached_tokens.load());
  counter("triptych_images_total", "Pictures that were decoded.", images.load());
  counter("triptych_image_bytes_total", "Bytes of pictures as they were sent.", image_bytes.load());
  counter("triptych_images_encoded_total", "Pictures that the tower has seen.", now.engine.n_media_encoded);
  counter("triptych_preemptions_total", "Sequences that gave back their cache and were computed again.",
          now.engine.n_preemptions);
  counter("triptych_steps_total", "Steps of the engine.", now.engine.n_steps);
  counter("triptych_step_seconds_total", "Seconds spent in steps.", now.engine.step_s);
  gauge("triptych_num_requests_preparing", "Requests whose pictures are decoded and resized.",
        now.n_preparing);
  gauge("triptych_num_requests_waiting", "Requests that wait for a place in the batch.",
        now.engine.n_waiting);
  gauge("triptych_num_requests_running", "Requests in the batch.", now.engine.n_running);
  gauge("triptych_kv_cache_bytes", "Memory of the key/value cache.", now.engine.kv_cache_bytes);
  gauge("triptych_http_connections", "Open connections.", now.n_connections);
  counter("triptych_http_connections_total", "Connections that were accepted.", now.n_accepted);
  counter("triptych_http_connections_refused_total", "Connections over the limit.", now.n_refused);
  counter("triptych_slow_readers_total", "Clients that were dropped because they did not read.",
          now.n_slow_readers);
  histogram("triptych_time_to_first_token_seconds", "From the whole request to the first token.",
            time_to_first_token);
  histogram("triptych_inter_token_latency_seconds", "Between two tokens of an answer.", inter_token_latency);
  histogram("triptych_e2e_request_latency_seconds", "From the whole request to the end of the answer.",
            e2e_latency);
  histogram("triptych_request_queue_time_seconds", "From a prepared request to its first step.", queue_time);
  histogram("triptych_image_decode_seconds", "Decoding one picture.", image_decode);
  histogram("triptych_prepare_seconds", "Rendering, tokenizing and resizing of one request.", prepare);
  histogram("triptych_image_encode_seconds", "Tower and projector for the pictures of one request.",
            image_encode);
  histogram("triptych_request_prefill_time_seconds", "The steps that read the prompt.", prefill);
  histogram("triptych_request_decode_time_seconds", "The steps behind the prompt.", decode);
  const std::lock_guard lock(mutex_);
  head(out, "triptych_request_success_total", "counter", "Answers by how they ended.");
  for (const auto& [reason, n] : finished_)
    out += fmt::format("triptych_request_success_total{{finished_reason=\"{}\"}} {}\n", reason, n);
  head(out, "triptych_http_requests_total", "counter", "HTTP requests by route and status.");
  for (const auto& [key, n] : http_)
    out += fmt::format("triptych_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first,
                       key.second, n);
  return out;
}

}  // namespace triptych::server
