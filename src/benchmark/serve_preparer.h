// Threads that prepare requests of a trace beside an engine's steps, as a server does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "benchmark/serve_requests.h"

namespace triptych {

struct PreparedTraceRequest {
  using TimePoint = std::chrono::steady_clock::time_point;
  std::size_t index = 0;
  PreparedRequest request;
  std::optional<RequestError> error;  // why there is none
  TimePoint begin{}, end{};           // of its preparation
};

class ServePreparer {
 public:
  /// Without threads take() prepares. Borrows `requests`.
  ServePreparer(const ServeRequests& requests, int n_threads);
  /// Waits for the request that is in work; those not begun are dropped.
  ~ServePreparer();
  ServePreparer(const ServePreparer&) = delete;
  ServePreparer& operator=(const ServePreparer&) = delete;

  void push(std::size_t index);
  /// One that is ready, the longest first; nothing when there is none.
  std::optional<PreparedTraceRequest> take();
  /// Until one is ready, or `deadline`; without a deadline one must be on its way.
  void wait(std::optional<PreparedTraceRequest::TimePoint> deadline);

 private:
  void work();
  PreparedTraceRequest prepare(std::size_t index) const;

  const ServeRequests& requests_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_ready_;
  std::deque<std::size_t> to_do_;
  std::deque<PreparedTraceRequest> ready_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace triptych
