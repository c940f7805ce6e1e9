// Threads for what takes long and needs no engine: parsing bodies, decoding and resizing pictures.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace triptych::server {

class WorkPool {
 public:
  explicit WorkPool(int n_threads);
  /// Runs what was posted before.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  /// Any thread; in order. What `work` throws is logged.
  void post(std::function<void()> work);
  std::size_t n_waiting() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace triptych::server
