// Worker threads for loops inside one step. The caller takes part, so a pool of n runs on n threads with n -
// 1 workers. A call allocates nothing. Workers look for the next call for some ten microseconds, then sleep.
// One call runs at a time: calls from other threads wait their turn; a call made from inside a body runs
// inline on its own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace triptych {

class ThreadPool {
 public:
  /// `n_threads` < 1 means usable_cpus(). With `pin`, thread i is bound to the i-th processor this process
  /// may use (the calling thread is never bound). Throws Error(kIo) when threads cannot be started.
  explicit ThreadPool(int n_threads = 0, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const noexcept;
  /// Calls so far that went to more than one thread.
  std::int64_t n_shared_calls() const noexcept;

  /// Bodies run with the caller's mode for denormals (base/flush_denormals.h).
  ///
  /// Calls body(begin, end, thread) until [0, n) is covered once, in pieces of `grain` (at least 1) or less;
  /// `thread` is in [0, n_threads) and no two pieces run at once with the same one. Pieces are handed out as
  /// threads become free, so results must not depend on which thread runs a piece. The first exception of a
  /// body is rethrown here, after all threads have stopped; pieces not yet begun are skipped then.
  void parallel_for(std::size_t n, std::size_t grain,
                    FunctionRef<void(std::size_t begin, std::size_t end, int thread)> body);

  /// The same with pieces that shrink from a share of what is left to `min_grain` (at least 1): few calls of
  /// the body, and threads that finish together (Polychronopoulos and Kuck, "Guided Self-Scheduling", IEEE
  /// Transactions on Computers, 1987).
  void parallel_guided(std::size_t n, std::size_t min_grain,
                       FunctionRef<void(std::size_t begin, std::size_t end, int thread)> body);

  /// Calls body(thread, n_threads) once for each thread, all at the same time, and waits for them (exceptions
  /// as above). Inside another body it calls body(0, 1) inline.
  void run(FunctionRef<void(int thread, int n_threads)> body);

 private:
  void spread(std::size_t n, std::size_t grain, bool guided,
              FunctionRef<void(std::size_t begin, std::size_t end, int thread)> body);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace triptych
