// How much each key has asked for lately, against its limits: buckets that fill up again in a minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/api_keys.h"

namespace triptych::server {

// Any thread.
class KeyUsage {
 public:
  using Clock = std::chrono::steady_clock;
  /// `now` is for tests.
  explicit KeyUsage(const ApiKeys& keys, std::function<Clock::time_point()> now = Clock::now);

  struct Refusal {
    std::string what;
    int retry_after_s = 1;
  };
  /// Counts a request of this key as begun, unless a limit is reached. What a request will cost in tokens is
  /// not known before: it is let in as long as the last minute's are below the limit.
  std::optional<Refusal> begin(std::size_t key);
  /// It has ended and took so many tokens.
  void end(std::size_t key, std::int64_t n_tokens);

 private:
  struct State {
    KeyLimits limits;
    double requests = 0, tokens = 0;  // left
    std::int64_t n_running = 0;
    Clock::time_point at;  // when that was so
  };
  void refill(State& state) const;

  std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  std::vector<State> states_;
};

}  // namespace triptych::server
