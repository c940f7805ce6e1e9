#include "benchmark/serve_preparer.h"

#include <pthread.h>

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace triptych {

ServePreparer::ServePreparer(const ServeRequests& requests, int n_threads) : requests_(requests) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { work(); });
}

ServePreparer::~ServePreparer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

PreparedTraceRequest ServePreparer::prepare(std::size_t index) const {
  PreparedTraceRequest out;
  out.index = index;
  out.begin = std::chrono::steady_clock::now();
  try {
    out.request = requests_.prepare(index);
  } catch (const Error& error) {
    out.error = RequestError{error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    out.error = RequestError{ErrorCode::kOutOfMemory, "no memory"};
  } catch (const std::exception& error) {
    out.error = RequestError{ErrorCode::kInternal, error.what()};
  }
  out.end = std::chrono::steady_clock::now();
  return out;
}

void ServePreparer::work() {
  pthread_setname_np(pthread_self(), "prepare");
  for (;;) {
    std::size_t index = 0;
    {
      std::unique_lock lock(mutex_);
      has_work_.wait(lock, [this] { return stopping_ || !to_do_.empty(); });
      if (stopping_) return;
      index = to_do_.front();
      to_do_.pop_front();
    }
    PreparedTraceRequest made = prepare(index);
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(made));
    }
    has_ready_.notify_one();
  }
}

void ServePreparer::push(std::size_t index) {
  {
    const std::lock_guard lock(mutex_);
    to_do_.push_back(index);
  }
  has_work_.notify_one();
}

std::optional<PreparedTraceRequest> ServePreparer::take() {
  const std::lock_guard lock(mutex_);
  if (threads_.empty() && !to_do_.empty()) {
    const std::size_t index = to_do_.front();
    to_do_.pop_front();
    return prepare(index);
  }
  if (ready_.empty()) return std::nullopt;
  PreparedTraceRequest out = std::move(ready_.front());
  ready_.pop_front();
  return out;
}

void ServePreparer::wait(std::optional<PreparedTraceRequest::TimePoint> deadline) {
  std::unique_lock lock(mutex_);
  const auto is_ready = [this] { return !ready_.empty() || (threads_.empty() && !to_do_.empty()); };
  if (deadline) {
    has_ready_.wait_until(lock, *deadline, is_ready);
  } else {
    has_ready_.wait(lock, is_ready);
  }
}

}  // namespace triptych
