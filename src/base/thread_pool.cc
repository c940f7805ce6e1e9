// All of a job lies in one cache line, so that a worker that looks for it has it by one transfer. A loop is
// cut into units; its ticket counts those that nobody took. Who lowers the ticket owns the units, and thereby
// knows the job not to be over: the caller waits until all units are reported done, each worker in a line of
// its own. A worker that the system wakes late finds no units left, and delays nobody.
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

// Looks until done(), for kYieldTime at most. False: it is time to sleep.
template <typename Done>
bool look_until(Done done) noexcept {
  if (done()) return true;
  const auto start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration waited{0};
  do {
    if (waited >= kSpinTime) sched_yield();
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
    waited = std::chrono::steady_clock::now() - start;
  } while (waited < kYieldTime);
  return false;
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
  static constexpr std::uint32_t kRun = 1;  // in an epoch: each thread calls the body once
  static constexpr std::uint64_t kUnits = 0xFFFFFFFFU;

  // Atomic is what a worker reads before it owns a part of the job; the rest is written while nobody does.
  struct alignas(64) Job {
    std::atomic<std::uint32_t> epoch{0};   // changes with each job: workers look at it, sleep on it
    std::atomic<bool> guided{false};       // pieces shrink
    bool flush = false;                    // the caller's mode for denormals
    std::atomic<std::uint64_t> ticket{0};  // epoch << 32 | units that nobody took
    const void* body = nullptr;            // ForBody, or RunBody
    std::size_t n = 0;
    std::size_t unit = 1;  // indices of a unit; the last may have fewer
    std::uint64_t n_units = 0;
    const char* zone = nullptr;  // of the caller, while events are recorded
  };
  static_assert(sizeof(Job) == 64);

  // Written by one worker.
  struct alignas(64) Report {
    std::atomic<std::uint64_t> done{0};  // epoch << 32 | units
  };

  // What a call is made of, before it is written to the job's line.
  struct Call {
    const void* body;
    std::uint32_t kind = 0;
    std::size_t n = 0;
    std::size_t unit = 1;
    std::uint64_t n_units = 0;
    bool guided = false;
  };

  Job job;
  alignas(64) std::atomic<bool> failed{false};
  std::atomic<bool> stopping{false};
  std::atomic<std::uint32_t> caller_sleeps{0};
  std::exception_ptr error;  // written once, by whoever sets `failed`

  alignas(64) std::atomic<std::int64_t> n_shared_calls{0};
  std::uint32_t last_epoch = 0;  // the caller's
  std::mutex call_mutex;
  std::vector<Report> reports;  // of the workers; thread i's is i - 1
  std::vector<std::thread> workers;

  int n_threads() const noexcept { return static_cast<int>(workers.size()) + 1; }
  std::uint64_t portions() const noexcept { return 2 * static_cast<std::uint64_t>(reports.size() + 1); }

  template <typename Body>
  void guarded(Body body) noexcept {
    try {
      body();
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_acq_rel)) error = std::current_exception();
    }
  }

  // Units of the next piece when `left` are left; after a failure all of them, which nobody computes.
  std::uint64_t piece_of(std::uint64_t left) const noexcept {
    if (failed.load(std::memory_order_relaxed)) return left;
    if (!job.guided.load(std::memory_order_relaxed)) return 1;
    return std::max<std::uint64_t>(1, left / portions());
  }

  void call_piece(std::uint64_t first, std::uint64_t n_units, int thread) noexcept {
    if (failed.load(std::memory_order_relaxed)) return;
    const std::size_t begin = static_cast<std::size_t>(first) * job.unit;
    const std::size_t rest = job.n - begin;
    const auto units = static_cast<std::size_t>(n_units);
    const std::size_t size = rest / units < job.unit ? rest : units * job.unit;
    guarded([&] { (*static_cast<const ForBody*>(job.body))(begin, begin + size, thread); });
  }

  // The caller's first: it knows the job without looking at its line.
  void call_own_piece(const Call& call, std::uint64_t n_units) noexcept {
    const std::size_t units = static_cast<std::size_t>(n_units);
    const std::size_t size = call.n / units < call.unit ? call.n : units * call.unit;
    guarded([&] { (*static_cast<const ForBody*>(call.body))(0, size, 0); });
  }

  // Takes pieces as long as there are any; the ticket as it was when there were none, and units done.
  std::pair<std::uint64_t, std::uint64_t> take_pieces(int thread) noexcept {
    std::uint64_t done = 0;
    std::uint64_t ticket = job.ticket.load(std::memory_order_acquire);
    while ((ticket & kUnits) > 0) {
      const std::uint64_t left = ticket & kUnits;
      const std::uint64_t size = piece_of(left);
      if (!job.ticket.compare_exchange_weak(ticket, ticket - size, std::memory_order_acq_rel,
                                            std::memory_order_acquire))
        continue;
      if (done == 0 && thread > 0) set_flush_denormals(job.flush);
      call_piece(job.n_units - left, size, thread);
      done += size;
      ticket = job.ticket.load(std::memory_order_acquire);
    }
    return {ticket, done};
  }

  void run_once(int thread) noexcept {
    guarded([&] { (*static_cast<const RunBody*>(job.body))(thread, n_threads()); });
  }

  // Sequentially consistent, as are the caller's own steps: either it sees this or is seen to sleep.
  void report(int thread, std::uint32_t epoch, std::uint64_t units) noexcept {
    std::atomic<std::uint64_t>& done = reports[static_cast<std::size_t>(thread - 1)].done;
    const std::uint64_t before = done.load(std::memory_order_relaxed);
    if (static_cast<std::uint32_t>(before >> 32) == epoch) units += before & kUnits;  // it came twice
    done.exchange(static_cast<std::uint64_t>(epoch) << 32 | units);
    if (caller_sleeps.load() == 0) return;
    caller_sleeps.store(0);
    caller_sleeps.notify_one();
  }

  std::uint32_t wait_for_job(std::uint32_t seen) noexcept {
    const auto epoch = [this] { return job.epoch.load(std::memory_order_acquire); };
    if (!look_until([&] { return epoch() != seen; })) job.epoch.wait(seen, std::memory_order_acquire);
    return epoch();
  }

  void work(int thread) noexcept {
    const FrameScope frame(this, thread);
    std::uint32_t seen = 0;
    for (;;) {
      seen = wait_for_job(seen);
      if (stopping.load(std::memory_order_acquire)) return;
      const std::int64_t start_ns = profile_keeps_spans() ? profile_clock_ns() : 0;
      if ((seen & kRun) != 0) {  // it cannot be over: the caller waits for this thread
        set_flush_denormals(job.flush);
        const char* const zone = job.zone;
        run_once(thread);
        if (zone != nullptr && start_ns > 0) profile_span(zone, start_ns);
        report(thread, seen, 1);
        continue;
      }
      const auto [ticket, done] = take_pieces(thread);
      if (done == 0) continue;
      if (job.zone != nullptr && start_ns > 0) profile_span(job.zone, start_ns);
      report(thread, static_cast<std::uint32_t>(ticket >> 32), done);
    }
  }

  // Whether the workers reported `units` of this job.
  bool reported(std::uint32_t epoch, std::uint64_t units) const noexcept {
    std::uint64_t sum = 0;
    for (const Report& report : reports) {
      const std::uint64_t done = report.done.load();
      if (static_cast<std::uint32_t>(done >> 32) == epoch) sum += done & kUnits;
    }
    return sum == units;
  }

  void wait_for_workers(std::uint32_t epoch, std::uint64_t units) noexcept {
    const auto done = [&] { return reported(epoch, units); };
    if (look_until(done)) return;
    for (;;) {
      caller_sleeps.store(1);
      if (done()) break;
      caller_sleeps.wait(1);
    }
    caller_sleeps.store(0);
  }

  // Publishes the job, of which the caller has its first piece already; works, waits, rethrows. call_mutex is
  // held. The line is written in one go: a worker that looks takes it away.
  void execute(const Call& call) {
    n_shared_calls.store(n_shared_calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (failed.load(std::memory_order_relaxed)) failed.store(false, std::memory_order_relaxed);
    const bool flush = flushes_denormals();
    const char* const zone = profile_traced_zone();
    const std::uint32_t kind = call.kind;
    const std::uint64_t n_units = call.n_units;
    const std::uint32_t epoch = ((last_epoch | kRun) + 1) | kind;
    const std::uint64_t own =
        kind == kRun ? 0 : (call.guided ? std::max<std::uint64_t>(1, n_units / portions()) : 1);
    last_epoch = epoch;
    job.flush = flush;
    job.body = call.body;
    job.n = call.n;
    job.unit = call.unit;
    job.n_units = n_units;
    job.zone = zone;
    job.guided.store(call.guided, std::memory_order_relaxed);
    job.ticket.store(static_cast<std::uint64_t>(epoch) << 32 | (n_units - own), std::memory_order_release);
    job.epoch.store(epoch);
    const std::uint64_t n_helpers = kind == kRun ? workers.size() : n_units - 1;
    if (n_helpers >= workers.size()) {
      job.epoch.notify_all();
    } else {
      for (std::uint64_t i = 0; i < n_helpers; ++i) job.epoch.notify_one();
    }
    std::uint64_t others = workers.size();
    if (kind == kRun) {
      run_once(0);
    } else {
      call_own_piece(call, own);
      others = n_units - own - take_pieces(0).second;
    }
    const std::int64_t wait_ns = zone != nullptr ? profile_clock_ns() : 0;
    wait_for_workers(epoch, others);
    if (zone != nullptr) profile_span(kWaitZone, wait_ns);
    if (failed.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(error, nullptr));
  }

  void stop() noexcept {
    stopping.store(true, std::memory_order_release);
    job.epoch.fetch_add(kRun + 1);
    job.epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int n_threads, bool pin) : state_(std::make_unique<State>()) {
  const int count = n_threads < 1 ? usable_cpus() : n_threads;
  const std::vector<int> cpus = pin ? allowed_cpus() : std::vector<int>{};
  state_->workers.reserve(static_cast<std::size_t>(count - 1));
  state_->reports = std::vector<State::Report>(static_cast<std::size_t>(count - 1));
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
  if (n_pieces == 1 || n_pieces > State::kUnits || state_->workers.empty()) {  // so many nobody has
    const FrameScope frame(state_.get(), 0);
    for (std::size_t begin = 0; begin < n; begin += std::min(grain, n - begin))
      body(begin, begin + std::min(grain, n - begin), 0);
    return;
  }
  const FrameScope frame(state_.get(), 0);
  state_->execute({.body = &body, .kind = 0, .n = n, .unit = grain, .n_units = n_pieces, .guided = guided});
}

void ThreadPool::run(State::RunBody body) {
  if (current_thread(state_.get()) >= 0) return body(0, 1);
  const std::lock_guard lock(state_->call_mutex);
  if (state_->workers.empty()) {
    const FrameScope frame(state_.get(), 0);
    return body(0, 1);
  }
  const FrameScope frame(state_.get(), 0);
  state_->execute({.body = &body, .kind = State::kRun});
}

}  // namespace triptych
