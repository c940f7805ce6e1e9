// What one render may use. Every loop of the interpreter charges steps, every object charges the bytes it
// holds, every recursion takes a DepthGuard: a hostile template or conversation ends in an error, never in a
// hang or a full memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace triptych::jinja {

struct Limits {
  std::uint64_t max_steps = 20'000'000;
  std::size_t max_memory_bytes = 256u << 20;
  std::size_t max_string_bytes = 64u << 20;
  std::int64_t max_range = 100'000;  // as jinja2's sandbox
  int max_depth = 400;               // nested evaluation: expressions, blocks, macro calls
  std::uint32_t max_nesting = 100;   // nested containers
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const noexcept { return limits_; }

  void charge(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.max_steps || steps > limits_.max_steps) [[unlikely]]
      fail(ErrorCode::kInvalidArgument, "the template needs more than {} steps", limits_.max_steps);
  }
  /// Work on a stretch of text as a whole: copying, searching.
  void charge_text(std::size_t bytes) { charge(1 + bytes / 32); }
  /// Work on each character of a text, which takes several nanoseconds a byte.
  void charge_characters(std::size_t bytes) { charge(1 + bytes / 4); }

  /// To be asked before text of this size is built.
  void check_text_size(std::size_t bytes) const {
    if (bytes > limits_.max_string_bytes) [[unlikely]]
      fail(ErrorCode::kInvalidArgument, "a text of the template exceeds {} bytes", limits_.max_string_bytes);
  }
  void take(std::size_t bytes) {
    if (bytes > limits_.max_memory_bytes - live_bytes_) [[unlikely]]
      fail(ErrorCode::kInvalidArgument, "the template needs more than {} bytes of memory",
           limits_.max_memory_bytes);
    live_bytes_ += bytes;
  }
  void give_back(std::size_t bytes) noexcept { live_bytes_ -= bytes; }

  void enter() {
    if (++depth_ > limits_.max_depth) [[unlikely]] {
      --depth_;
      fail(ErrorCode::kInvalidArgument, "the template nests calls or expressions too deeply");
    }
  }
  void leave() noexcept { --depth_; }

 private:
  Limits limits_;
  std::uint64_t steps_ = 0;
  std::size_t live_bytes_ = 0;
  int depth_ = 0;
};

class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~DepthGuard() { budget_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

}  // namespace triptych::jinja
