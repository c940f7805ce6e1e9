// A call that can be left in the middle and gone on with later: it runs on a stack of its own, on the thread
// that resumes it. What long work is written as stays one plain function, and whoever runs it decides when it
// goes on.
//
// The thread may be another each time, so a body keeps no reference to a thread's own variables over
// suspend(). Zones of the profile that are open are set aside with it, and its time outside is not counted.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace triptych {

class Fiber {
 public:
  /// Address space of the stack; memory is taken for what is touched.
  static constexpr std::size_t kStack_bytes = std::size_t{8} << 20;

  /// `body` begins at the first resume(). Throws Error(kOutOfMemory) when there is no stack to be had.
  explicit Fiber(std::function<void(Fiber&)> body);
  /// A body that was left in the middle is unwound: suspend() throws in it.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until it suspends or ends; rethrows what it threw. Not after it ended, and not from inside
  /// itself.
  void resume();
  bool done() const noexcept;
  /// From inside the body: back to whoever resumed it.
  void suspend();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace triptych
