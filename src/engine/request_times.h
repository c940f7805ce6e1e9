// When things happened to a request, and what times follow from that.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "engine/request.h"

namespace triptych {

class RequestTimes {
 public:
  using Clock = std::chrono::steady_clock;

  /// It was submitted now; `arrival` may be earlier.
  void submitted(std::optional<Clock::time_point> arrival) {
    submitted_ = Clock::now();
    arrival_ = arrival.value_or(submitted_);
  }
  /// It was admitted among the running. True the first time.
  bool started(GenerationTimings& timings) {
    if (is_started_) return false;
    is_started_ = true;
    timings.queue_ms = ms(submitted_, Clock::now());
    return true;
  }
  /// A token came. Returns the time since the one before, ms; nothing for the first.
  std::optional<double> token(GenerationTimings& timings) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point before = last_token_;
    last_token_ = now;
    if (++n_tokens_ > 1) return ms(before, now);
    first_token_ = now;
    timings.first_token_ms = ms(arrival_, now);
    return std::nullopt;
  }
  void ended(GenerationTimings& timings) const {
    timings.total_ms = ms(arrival_, Clock::now());
    if (n_tokens_ > 1)
      timings.inter_token_ms = ms(first_token_, last_token_) / static_cast<double>(n_tokens_ - 1);
  }

 private:
  static double ms(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  }

  Clock::time_point arrival_{}, submitted_{}, first_token_{}, last_token_{};
  std::int64_t n_tokens_ = 0;
  bool is_started_ = false;
};

}  // namespace triptych
