// Wall time since its construction.
#pragma once

#include <chrono>

namespace triptych {

class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }
  Clock::time_point start() const noexcept { return start_; }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace triptych
