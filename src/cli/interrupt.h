// Ctrl-C as a wish, not an end: while an Interrupt lives, SIGINT sets a flag (and makes a read under an
// InterruptsRead return); a second one before the flag is taken ends the process as usual.
#pragma once

namespace triptych::cli {

class Interrupt {
 public:
  Interrupt();
  /// Restores what was there before.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True when SIGINT came and nobody took it yet.
  static bool pending() noexcept;
  /// The same, and takes it.
  static bool take() noexcept;
};

/// Set around a blocking read, which SIGINT then ends while an Interrupt lives. A signal that comes just
/// before the read would not interrupt it; while this lives, an alarm follows every second until the signal
/// is taken, so that the read returns all the same.
class InterruptsRead {
 public:
  InterruptsRead();
  ~InterruptsRead();
  InterruptsRead(const InterruptsRead&) = delete;
  InterruptsRead& operator=(const InterruptsRead&) = delete;

 private:
  bool handles_ = false;
};

}  // namespace triptych::cli
