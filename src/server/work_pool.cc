#include "server/work_pool.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace triptych::server {

WorkPool::WorkPool(int n_threads) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkPool::~WorkPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkPool::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
}

std::size_t WorkPool::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void WorkPool::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;  // and it is to stop
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      work();
    } catch (const std::exception& failure) {
      log_warning("a request: {}", failure.what());
    }
  }
}

}  // namespace triptych::server
