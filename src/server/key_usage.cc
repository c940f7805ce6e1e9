#include "server/key_usage.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace triptych::server {
namespace {

// Until a bucket that fills up in a minute holds `wanted`.
int seconds_until(double wanted, double held, std::int64_t per_minute) {
  const double s = (wanted - held) * 60.0 / static_cast<double>(per_minute);
  return static_cast<int>(std::clamp(std::ceil(s), 1.0, 86400.0));
}

}  // namespace

KeyUsage::KeyUsage(const ApiKeys& keys, std::function<Clock::time_point()> now) : now_(std::move(now)) {
  const Clock::time_point begin = now_();
  for (std::size_t i = 0; i < keys.size(); ++i)
    states_.push_back({.limits = keys.limits(i),
                       .requests = static_cast<double>(keys.limits(i).requests_per_minute),
                       .tokens = static_cast<double>(keys.limits(i).tokens_per_minute),
                       .at = begin});
}

void KeyUsage::refill(State& state) const {
  const Clock::time_point now = now_();
  const double minutes = std::chrono::duration<double>(now - state.at).count() / 60.0;
  state.at = now;
  const auto fill = [minutes](double& held, std::int64_t per_minute) {
    const auto full = static_cast<double>(per_minute);
    held = std::min(full, held + minutes * full);
  };
  fill(state.requests, state.limits.requests_per_minute);
  fill(state.tokens, state.limits.tokens_per_minute);
}

std::optional<KeyUsage::Refusal> KeyUsage::begin(std::size_t key) {
  const std::lock_guard lock(mutex_);
  State& state = states_[key];
  const KeyLimits& limits = state.limits;
  if (!limits.any()) return std::nullopt;
  refill(state);
  if (limits.concurrent > 0 && state.n_running >= limits.concurrent)
    return Refusal{fmt::format("the key has {} requests under way, as many as it may", state.n_running), 1};
  if (limits.requests_per_minute > 0 && state.requests < 1)
    return Refusal{fmt::format("the key may ask {} times a minute", limits.requests_per_minute),
                   seconds_until(1, state.requests, limits.requests_per_minute)};
  if (limits.tokens_per_minute > 0 && state.tokens <= 0)
    return Refusal{fmt::format("the key may use {} tokens a minute", limits.tokens_per_minute),
                   seconds_until(1, state.tokens, limits.tokens_per_minute)};
  state.requests -= 1;
  ++state.n_running;
  return std::nullopt;
}

void KeyUsage::end(std::size_t key, std::int64_t n_tokens) {
  const std::lock_guard lock(mutex_);
  State& state = states_[key];
  if (!state.limits.any()) return;
  refill(state);
  state.tokens -= static_cast<double>(n_tokens);
  --state.n_running;
}

}  // namespace triptych::server
