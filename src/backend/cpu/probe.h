// The machine's limits, measured: what a kernel could reach at best. Other programs on the machine lower
// them, so compare with products measured in the same minute.
#pragma once

#include <cstddef>
#include <memory>

#include "base/cpu_features.h"

namespace triptych {

/// Work per second of wall time, and per second of processor time that each thread had. On an idle machine
/// they are equal; on a busy one the second tells what the machine can do.
struct Rate {
  double wall = 0;
  double cpu = 0;
};

/// Rates by wall time; zero where the instruction set has no way to it.
struct MachineLimits {
  int n_threads = 1;
  double fp32_flops_per_s = 0;  // multiply-adds counted as two
  double read_bytes_per_s = 0;  // from memory, an array larger than the caches
  double int8_ops_per_s = 0;    // products of bytes added up in 32 bits; 0 in the scalar set
  double bf16_flops_per_s = 0;  // 0 without an instruction for it
};

/// Several measurements of each limit.
struct MeasuredLimits {
  MachineLimits median, lowest, highest;
};

/// Measures wall and processor time of a piece of work that `n_threads` threads of this process share.
class RateStopwatch {
 public:
  explicit RateStopwatch(int n_threads) noexcept;
  /// Amounts done since the start, per second.
  Rate rate(double amount) const noexcept;
  double wall_s() const noexcept;

 private:
  int n_threads_;
  double wall_begin_s_;
  double cpu_begin_s_;
};

class MachineProbe {
 public:
  /// `read_buffer_bytes` (at least 1 MB) should be several times the last cache. Allocates and touches it, in
  /// huge pages where the system grants them. The threads read in turn from pieces of 1 MB.
  explicit MachineProbe(int n_threads, CpuFeatures features,
                        std::size_t read_buffer_bytes = std::size_t{256} << 20);
  ~MachineProbe();

  int n_threads() const noexcept;
  /// One measurement over all threads of about `seconds`. Zero where the instruction set has no such
  /// instruction.
  Rate fp32_flops(double seconds = 0.01);
  Rate int8_ops(double seconds = 0.01);
  Rate bf16_flops(double seconds = 0.01);
  /// One pass over the buffer, every thread its own part.
  Rate read_bytes();
  /// Every thread goes several times over its own part of the buffer's first n_bytes (as many as the buffer
  /// has at most): as fast as caches allow where these hold it.
  Rate read_again(std::size_t n_bytes);
  /// `n_rounds` (at least 1) measurements of each, in turn.
  MeasuredLimits measure(int n_rounds = 7);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace triptych
