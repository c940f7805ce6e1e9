// Within its scope this thread treats denormal numbers as zero, results (FTZ) and operands (DAZ): a processor
// handles them in microcode, a hundred times slower, and they mean nothing here. The scope before is
// restored. ThreadPool gives its workers the caller's mode for the time of a call.
#pragma once

namespace triptych {

/// Whether the mode is on for this thread.
bool flushes_denormals() noexcept;
/// Switches it; cheap when nothing changes.
void set_flush_denormals(bool on) noexcept;

class FlushDenormals {
 public:
  explicit FlushDenormals(bool on = true) noexcept : before_(flushes_denormals()) { set_flush_denormals(on); }
  ~FlushDenormals() { set_flush_denormals(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  bool before_;
};

}  // namespace triptych
