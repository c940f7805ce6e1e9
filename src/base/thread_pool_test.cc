#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_info.h"
#include "base/error.h"
#include "base/flush_denormals.h"
#include "support/allocation_counter.h"

namespace triptych {
namespace {

int twice(int x) { return 2 * x; }

TEST(FunctionRef, CallsLambdasFunctionsAndFunctors) {
  int sum = 0;
  const auto add = [&sum](int x) { sum += x; };
  FunctionRef<void(int)> ref = add;
  ref(3);
  ref(4);
  EXPECT_EQ(sum, 7);
  FunctionRef<int(int)> function = twice;
  EXPECT_EQ(function(21), 42);
  FunctionRef<int(int)> pointer = &twice;
  EXPECT_EQ(pointer(4), 8);
  auto counter = [n = 0]() mutable { return ++n; };
  FunctionRef<int()> stateful = counter;
  stateful();
  EXPECT_EQ(stateful(), 2);
  FunctionRef<std::unique_ptr<int>(std::unique_ptr<int>)> mover = [](std::unique_ptr<int> p) { return p; };
  EXPECT_EQ(*mover(std::make_unique<int>(5)), 5);
}

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, CoversEveryIndexOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.n_threads(), GetParam());
  for (const std::size_t n : {0U, 1U, 2U, 3U, 7U, 64U, 1000U, 1001U}) {
    for (const std::size_t grain : {0U, 1U, 3U, 64U, 5000U}) {
      std::vector<std::atomic<int>> hits(n);
      pool.parallel_for(n, grain, [&](std::size_t begin, std::size_t end, int thread) {
        ASSERT_LT(begin, end);
        ASSERT_LE(end, n);
        ASSERT_LE(end - begin, std::max<std::size_t>(grain, 1));
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, pool.n_threads());
        for (std::size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
      });
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(hits[i].load(), 1) << "n " << n << " grain " << grain << " i " << i;
    }
  }
}

TEST_P(ThreadPoolTest, GuidedPiecesShrinkToTheSmallest) {
  ThreadPool pool(GetParam());
  for (const std::size_t n : {0U, 1U, 2U, 14U, 76U, 1001U}) {
    for (const std::size_t grain : {0U, 1U, 3U, 5000U}) {
      std::vector<std::atomic<int>> hits(n);
      std::mutex mutex;
      std::vector<std::pair<std::size_t, std::size_t>> pieces;  // begin, size
      pool.parallel_guided(n, grain, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
        const std::scoped_lock lock(mutex);
        pieces.emplace_back(begin, end - begin);
      });
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(hits[i].load(), 1) << "n " << n << " grain " << grain << " i " << i;
      std::sort(pieces.begin(), pieces.end());
      const std::size_t smallest = std::max<std::size_t>(grain, 1);
      for (std::size_t i = 1; i < pieces.size(); ++i) {
        EXPECT_LE(pieces[i].second, pieces[i - 1].second);
        if (i + 1 < pieces.size()) {
          EXPECT_GE(pieces[i].second, smallest);
        }
      }
      // No piece holds so much that its thread is behind all others, whatever they are given.
      if (pieces.size() > 1) {
        EXPECT_LE(pieces[0].second, std::max(smallest, n / 4));
      }
    }
  }
}

TEST_P(ThreadPoolTest, HugeRangesDoNotOverflow) {
  ThreadPool pool(GetParam());
  const std::size_t n = std::numeric_limits<std::size_t>::max();
  for (const bool guided : {false, true}) {
    std::atomic<std::size_t> sum{0};
    const auto add = [&](std::size_t begin, std::size_t end, int) { sum += end - begin; };
    guided ? pool.parallel_guided(n, n / 3, add) : pool.parallel_for(n, n / 3, add);
    EXPECT_EQ(sum.load(), n);
  }
}

// Plain (not atomic) data per thread id: the thread sanitizer reports two threads with one id.
TEST_P(ThreadPoolTest, NoTwoThreadsShareAnId) {
  ThreadPool pool(GetParam());
  std::vector<std::size_t> sums(static_cast<std::size_t>(pool.n_threads()));
  for (int repeat = 0; repeat < 200; ++repeat)
    pool.parallel_for(97, 1, [&](std::size_t begin, std::size_t end, int thread) {
      for (std::size_t i = begin; i < end; ++i) sums[static_cast<std::size_t>(thread)] += i;
    });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::size_t{0}), 200u * 96 * 97 / 2);
}

TEST_P(ThreadPoolTest, RunCallsEachThreadOnceAndAtTheSameTime) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::vector<int> calls(static_cast<std::size_t>(GetParam()));
    std::atomic<int> n_inside{0};
    pool.run([&](int thread, int n_threads) {
      ASSERT_EQ(n_threads, GetParam());
      ++calls[static_cast<std::size_t>(thread)];
      // A barrier: it only opens when all are inside.
      n_inside.fetch_add(1);
      while (n_inside.load() < n_threads) std::this_thread::yield();
    });
    for (const int n : calls) ASSERT_EQ(n, 1);
    if (repeat % 3 == 0) pool.parallel_for(5, 1, [](std::size_t, std::size_t, int) {});
  }
}

TEST_P(ThreadPoolTest, ExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  int fewest_calls = 10000;
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> n_calls{0};
    try {
      pool.parallel_for(10000, 1, [&](std::size_t begin, std::size_t, int) {
        n_calls.fetch_add(1);
        if (begin == 5) throw Error(ErrorCode::kInvalidFile, "piece 5");
      });
      FAIL() << "no exception";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "piece 5");
    }
    fewest_calls = std::min(fewest_calls, n_calls.load());
    EXPECT_THROW(pool.run([](int thread, int) {
      if (thread == 0) throw std::runtime_error("thread");
    }),
                 std::runtime_error);
    int sum = 0;
    pool.parallel_for(1, 1, [&](std::size_t, std::size_t, int) { ++sum; });
    EXPECT_EQ(sum, 1);
  }
  // Pieces not yet begun are skipped. (Once in a while the thrower is put to sleep while the others do all of
  // them.)
  EXPECT_LT(fewest_calls, 10000);
  if (GetParam() == 1) {
    EXPECT_EQ(fewest_calls, 6);
  }
}

TEST_P(ThreadPoolTest, NestedCallsRunInline) {
  ThreadPool pool(GetParam());
  std::atomic<int> n_inner{0};
  pool.parallel_for(8, 1, [&](std::size_t, std::size_t, int thread) {
    const auto outer = std::this_thread::get_id();
    pool.parallel_for(10, 3, [&](std::size_t begin, std::size_t end, int inner_thread) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(inner_thread, thread);
      n_inner.fetch_add(static_cast<int>(end - begin));
    });
    pool.run([&](int inner_thread, int n_threads) {
      EXPECT_EQ(inner_thread, 0);
      EXPECT_EQ(n_threads, 1);
      EXPECT_EQ(std::this_thread::get_id(), outer);
    });
  });
  EXPECT_EQ(n_inner.load(), 80);
}

TEST_P(ThreadPoolTest, CallersFromSeveralThreadsTakeTurns) {
  ThreadPool pool(GetParam());
  std::atomic<std::size_t> sum{0};
  std::size_t unguarded = 0;  // bodies of different calls never overlap
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        pool.parallel_for(20, 2, [&](std::size_t begin, std::size_t end, int) { sum += end - begin; });
        pool.parallel_for(1, 1, [&](std::size_t, std::size_t, int) { ++unguarded; });
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4u * 100 * 20);
  EXPECT_EQ(unguarded, 400u);
}

TEST_P(ThreadPoolTest, WakesSleepingWorkers) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // long past the spinning
    std::set<std::thread::id> ids;
    std::mutex mutex;
    pool.run([&](int, int) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(GetParam()));
  }
}

TEST_P(ThreadPoolTest, CallsAllocateNothing) {
  ThreadPool pool(GetParam());
  std::atomic<std::size_t> sum{0};
  const auto calls = [&] {
    pool.parallel_for(100, 7, [&](std::size_t begin, std::size_t end, int) { sum += end - begin; });
    pool.run([&](int, int) { sum += 1; });
  };
  calls();
  const long before = n_allocations();
  for (int i = 0; i < 100; ++i) calls();
  EXPECT_EQ(n_allocations(), before);
  allocate_once();
  EXPECT_GT(n_allocations(), before) << "the counter does not count";
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, DefaultIsTheUsableProcessors) {
  ThreadPool pool;
  EXPECT_EQ(pool.n_threads(), usable_cpus());
}

TEST(ThreadPool, PinBindsWorkersToDifferentProcessors) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const int n = CPU_COUNT(&allowed);
  if (n < 2) GTEST_SKIP() << "one processor only";
  ThreadPool pool(n, true);
  std::vector<int> n_cpus(static_cast<std::size_t>(n));
  std::vector<int> cpu(static_cast<std::size_t>(n));
  pool.run([&](int thread, int) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof(mine), &mine);
    n_cpus[static_cast<std::size_t>(thread)] = CPU_COUNT(&mine);
    cpu[static_cast<std::size_t>(thread)] = sched_getcpu();
  });
  EXPECT_EQ(n_cpus[0], n);  // the caller is left alone
  std::set<int> distinct(cpu.begin() + 1, cpu.end());
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(n - 1));
  for (int i = 1; i < n; ++i) EXPECT_EQ(n_cpus[static_cast<std::size_t>(i)], 1);
}

TEST(ThreadPool, WorkersTakeNoSignals) {
  ThreadPool pool(3);
  std::vector<int> is_blocked(3);
  pool.run([&](int thread, int) {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    is_blocked[static_cast<std::size_t>(thread)] = sigismember(&set, SIGINT);
  });
  EXPECT_EQ(is_blocked, (std::vector<int>{0, 1, 1}));
}

// Threads of this process. One that was joined may be listed for a moment longer.
int n_threads_after_exits(int expected) {
  const auto count = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<int>(std::distance(begin(tasks), end(tasks)));
  };
  for (int wait_ms = 0; wait_ms < 1000 && count() != expected; ++wait_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return count();
}

TEST(ThreadPool, StartsAndStopsOftenAndLeavesNoThread) {
  const int before = n_threads_after_exits(1);
  std::atomic<int> n_calls{0};
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(4);
    if (i % 2 == 0) pool.parallel_for(4, 1, [&](std::size_t, std::size_t, int) { ++n_calls; });
  }
  EXPECT_EQ(n_calls, 50 * 4);
  EXPECT_EQ(n_threads_after_exits(before), before);
}

// Every thread of a call computes as its caller does, and as before afterwards.
TEST(ThreadPool, WorkersFlushDenormalsWhenTheCallerDoes) {
  ThreadPool pool(3);
  const auto product = [] {
    volatile float tiny = 1e-30F;
    volatile float result = tiny * 1e-10F;
    return static_cast<float>(result);
  };
  const auto products = [&] {
    std::vector<float> out(3, -1.0F);
    pool.run([&](int thread, int) { out[static_cast<std::size_t>(thread)] = product(); });
    return out;
  };
  const std::vector<float> kept(3, 1e-40F);
  EXPECT_EQ(products(), kept);
  {
    const FlushDenormals scope;
    EXPECT_TRUE(flushes_denormals());
    EXPECT_EQ(products(), std::vector<float>(3, 0.0F));
    {
      const FlushDenormals inner(false);
      EXPECT_EQ(products(), kept);
    }
    EXPECT_TRUE(flushes_denormals());
  }
  EXPECT_FALSE(flushes_denormals());
  EXPECT_EQ(products(), kept);
}

// Sleeping workers cost nothing. Generous bounds, as the machine may be busy.
TEST(ThreadPool, AnIdlePoolUsesNoProcessorTime) {
  ThreadPool pool(4);
  pool.run([](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than any spin
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.1);
}

}  // namespace
}  // namespace triptych
