// The machine's limits, measured: what a kernel could reach at best. Other programs on the machine lower
// them, so compare with products measured in the same minute.
#pragma once

#include <cstddef>
#include <memory>

#include "base/cpu_info.h"

namespace triptych {

struct MachineLimits {
  int n_threads = 1;
  double fp32_flops_per_s = 0;  // multiply-adds counted as two
  double read_bytes_per_s = 0;  // from memory, an array larger than the caches
  double int8_ops_per_s = 0;    // 0 without VNNI
  double bf16_flops_per_s = 0;  // 0 without AVX512-BF16
};

class MachineProbe {
 public:
  /// `read_buffer_bytes` should be several times the last cache. Allocates and touches it.
  explicit MachineProbe(int n_threads, Isa isa, std::size_t read_buffer_bytes = std::size_t{256} << 20);
  ~MachineProbe();

  int n_threads() const noexcept;
  /// One measurement over all threads of about `seconds` each (at least one pass). With one thread, time is
  /// the processor time of the caller, otherwise wall time.
  double fp32_flops_per_s(double seconds = 0.01);
  double int8_ops_per_s(double seconds = 0.01);
  double bf16_flops_per_s(double seconds = 0.01);
  double read_bytes_per_s();
  /// Best of `n_rounds` of each.
  MachineLimits measure(int n_rounds = 5);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace triptych
