// What steps have cost lately, to say beforehand what the next one will.
#pragma once

#include <cstdint>

namespace triptych {

/// Rows of one step and how long it took.
struct StepMeasurement {
  std::int64_t n_decode_rows = 0;
  std::int64_t n_prefill_rows = 0;
  double ms = 0;
};

class StepCosts {
 public:
  void note(const StepMeasurement& step) noexcept;
  /// Of a step in which sequences only decode; 0: none was seen.
  double decode_ms() const noexcept { return decode_ms_; }
  /// What a row of a prompt adds to it; 0: unknown.
  double prefill_row_ms() const noexcept { return prefill_row_ms_; }

 private:
  // Means that forget: prompts cost more with each row that is behind them, batches grow and shrink.
  double decode_ms_ = 0;
  double prefill_row_ms_ = 0;
};

}  // namespace triptych
