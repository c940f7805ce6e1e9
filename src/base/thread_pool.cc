// A call publishes a job and opens a gate; a worker joins by counting itself in while the gate is open. The
// caller works too, then closes the gate and waits only for those who joined: a worker that the system wakes
// late delays nobody.
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cpu_info.h"
#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/profile.h"

namespace triptych {
namespace {

// How long a thread looks before it sleeps: loops of one step follow each other within some ten microseconds,
// and to be woken takes as long or longer (docs/performance.md, "Dispatch"). After the first of them it
// offers its processor each time it looks, so that a thread it shares it with, which may be the one it waits
// for, runs at once.
constexpr std::chrono::microseconds kSpinTime{8};
constexpr std::chrono::microseconds kYieldTime{60};

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then sleeps, until done(value of word). Returns with acquire ordering.
template <typename Done>
std::uint32_t wait_until(const std::atomic<std::uint32_t>& word, Done done) noexcept {
  std::uint32_t value = word.load(std::memory_order_acquire);
  if (done(value)) return value;
  const auto start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration waited{0};
  do {
    if (waited >= kSpinTime) sched_yield();
    for (int i = 0; i < 16; ++i) {
      value = word.load(std::memory_order_acquire);
      if (done(value)) return value;
      relax();
    }
    waited = std::chrono::steady_clock::now() - start;
  } while (waited < kYieldTime);
  while (!done(value)) {
    word.wait(value, std::memory_order_acquire);
    value = word.load(std::memory_order_acquire);
  }
  return value;
}

// The bodies that this thread is inside of, innermost first.
struct Frame {
  const void* pool;
  int thread;
  Frame* outer;
};
thread_local Frame* t_frame = nullptr;

class FrameScope {
 public:
  FrameScope(const void* pool, int thread) noexcept : frame_{pool, thread, t_frame} { t_frame = &frame_; }
  ~FrameScope() { t_frame = frame_.outer; }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  Frame frame_;
};

// Number of this thread in `pool` when it runs one of its bodies, else -1.
int current_thread(const void* pool) noexcept {
  for (const Frame* frame = t_frame; frame != nullptr; frame = frame->outer)
    if (frame->pool == pool) return frame->thread;
  return -1;
}

std::vector<int> allowed_cpus() {
  std::vector<int> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  return out;
}

}  // namespace

struct ThreadPool::State {
  using ForBody = FunctionRef<void(std::size_t, std::size_t, int)>;
  using RunBody = FunctionRef<void(int, int)>;
  static constexpr std::uint32_t kOpen = 1;    // gate: a job may be joined
  static constexpr std::uint32_t kJoined = 2;  // gate: one worker counted in

  // The job. Written by the caller while the gate is closed and nobody is in; read after joining.
  const ForBody* for_body = nullptr;
  const RunBody* run_body = nullptr;
  std::size_t n = 0;
  std::size_t grain = 1;
  bool guided = false;
  std::uint64_t serial = 0;
  bool flush = false;          // the caller's mode for denormals
  const char* zone = nullptr;  // of the caller, while events are recorded
  std::exception_ptr error;    // written once, by whoever sets `failed`

  alignas(64) std::atomic<std::size_t> next{0};  // first index that nobody took
  std::atomic<bool> failed{false};
  alignas(64) std::atomic<std::uint32_t> epoch{0};  // changes when a job is published: workers sleep on it
  std::atomic<bool> stopping{false};
  std::atomic<std::int64_t> n_shared_calls{0};
  alignas(64) std::atomic<std::uint32_t> gate{0};
  alignas(64) std::atomic<std::uint32_t> run_left{0};  // workers that still have to call run_body

  std::mutex call_mutex;
  std::vector<std::thread> workers;

  int n_threads() const noexcept { return static_cast<int>(workers.size()) + 1; }

  template <typename Body>
  void guarded(Body body) noexcept {
    try {
      body();
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_acq_rel)) error = std::current_exception();
    }
  }

  void take_pieces(int thread) noexcept {
    const FrameScope frame(this, thread);
    const std::size_t portions = 2 * static_cast<std::size_t>(n_threads());
    std::size_t begin = next.load(std::memory_order_relaxed);
    while (begin < n && !failed.load(std::memory_order_relaxed)) {
      const std::size_t left = n - begin;
      const std::size_t size = std::min(left, guided ? std::max(grain, left / portions) : grain);
      if (!next.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed)) continue;
      guarded([&] { (*for_body)(begin, begin + size, thread); });
      begin = next.load(std::memory_order_relaxed);
    }
  }

  void run_once(int thread) noexcept {
    const FrameScope frame(this, thread);
    guarded([&] { (*run_body)(thread, n_threads()); });
  }

  bool join() noexcept {
    std::uint32_t value = gate.load(std::memory_order_acquire);
    while ((value & kOpen) != 0)
      if (gate.compare_exchange_weak(value, value + kJoined, std::memory_order_acquire)) return true;
    return false;
  }

  void leave() noexcept {
    if (gate.fetch_sub(kJoined, std::memory_order_release) == kJoined) gate.notify_one();
  }

  void work(int thread) noexcept {
    std::uint32_t seen = 0;
    std::uint64_t last_run = 0;  // run_body is called once even when a job is joined twice
    for (;;) {
      seen = wait_until(epoch, [seen](std::uint32_t value) { return value != seen; });
      if (stopping.load(std::memory_order_acquire)) return;
      if (!join()) continue;
      set_flush_denormals(flush);
      const char* const traced = zone;
      const std::int64_t start_ns = traced != nullptr ? profile_clock_ns() : 0;
      if (for_body != nullptr) {
        take_pieces(thread);
        if (traced != nullptr) profile_span(traced, start_ns);
      } else if (serial != last_run) {
        last_run = serial;
        run_once(thread);
        if (traced != nullptr) profile_span(traced, start_ns);
        if (run_left.fetch_sub(1, std::memory_order_release) == 1) run_left.notify_one();
      }
      leave();
    }
  }

  // Publishes the job, works, waits, rethrows. call_mutex is held.
  void execute(std::size_t n_helpers) {
    ++serial;
    n_shared_calls.fetch_add(1, std::memory_order_relaxed);
    flush = flushes_denormals();
    error = nullptr;
    zone = profile_traced_zone();
    failed.store(false, std::memory_order_relaxed);
    next.store(0, std::memory_order_relaxed);
    if (run_body != nullptr)
      run_left.store(static_cast<std::uint32_t>(workers.size()), std::memory_order_relaxed);
    gate.store(kOpen, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_release);
    if (n_helpers >= workers.size()) {
      epoch.notify_all();
    } else {
      for (std::size_t i = 0; i < n_helpers; ++i) epoch.notify_one();
    }
    if (for_body != nullptr) {
      take_pieces(0);
    } else {
      run_once(0);
    }
    const std::int64_t wait_ns = zone != nullptr ? profile_clock_ns() : 0;
    if (run_body != nullptr) {
      wait_until(run_left, [](std::uint32_t value) { return value == 0; });
    }
    gate.fetch_sub(kOpen, std::memory_order_relaxed);
    wait_until(gate, [](std::uint32_t value) { return value == 0; });
    if (zone != nullptr) profile_span(kWaitZone, wait_ns);
    for_body = nullptr;
    run_body = nullptr;
    if (failed.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(error, nullptr));
  }

  void stop() noexcept {
    stopping.store(true, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int n_threads, bool pin) : state_(std::make_unique<State>()) {
  const int count = n_threads < 1 ? usable_cpus() : n_threads;
  const std::vector<int> cpus = pin ? allowed_cpus() : std::vector<int>{};
  state_->workers.reserve(static_cast<std::size_t>(count - 1));
  // Workers inherit a mask that blocks every signal: handlers run on the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int i = 1; i < count; ++i) {
      std::thread& worker = state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
      pthread_setname_np(worker.native_handle(), ("triptych-" + std::to_string(i)).substr(0, 15).c_str());
      if (cpus.empty()) continue;
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<std::size_t>(cpus[static_cast<std::size_t>(i) % cpus.size()]), &set);
      pthread_setaffinity_np(worker.native_handle(), sizeof(set),
                             &set);  // a hint: failure changes speed only
    }
  } catch (const std::system_error& failure) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    const std::size_t n_started = state_->workers.size() + 1;
    state_->stop();
    fail(ErrorCode::kIo, "cannot start thread {} of {}: {}", n_started, count, failure.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() { state_->stop(); }

std::int64_t ThreadPool::n_shared_calls() const noexcept {
  return state_->n_shared_calls.load(std::memory_order_relaxed);
}

int ThreadPool::n_threads() const noexcept { return state_->n_threads(); }

void ThreadPool::parallel_for(std::size_t n, std::size_t grain, State::ForBody body) {
  spread(n, grain, false, body);
}

void ThreadPool::parallel_guided(std::size_t n, std::size_t min_grain, State::ForBody body) {
  spread(n, min_grain, true, body);
}

void ThreadPool::spread(std::size_t n, std::size_t grain, bool guided, State::ForBody body) {
  if (n == 0) return;
  grain = std::max<std::size_t>(grain, 1);
  const std::size_t n_pieces = (n - 1) / grain + 1;
  const int inside = current_thread(state_.get());
  if (inside >= 0) {
    for (std::size_t begin = 0; begin < n; begin += std::min(grain, n - begin))
      body(begin, begin + std::min(grain, n - begin), inside);
    return;
  }
  const std::lock_guard lock(state_->call_mutex);
  if (n_pieces == 1 || state_->workers.empty()) {
    const FrameScope frame(state_.get(), 0);
    for (std::size_t begin = 0; begin < n; begin += std::min(grain, n - begin))
      body(begin, begin + std::min(grain, n - begin), 0);
    return;
  }
  state_->for_body = &body;
  state_->n = n;
  state_->grain = grain;
  state_->guided = guided;
  state_->execute(n_pieces - 1);
}

void ThreadPool::run(State::RunBody body) {
  if (current_thread(state_.get()) >= 0) return body(0, 1);
  const std::lock_guard lock(state_->call_mutex);
  if (state_->workers.empty()) {
    const FrameScope frame(state_.get(), 0);
    return body(0, 1);
  }
  state_->run_body = &body;
  state_->execute(state_->workers.size());
}

}  // namespace triptych
