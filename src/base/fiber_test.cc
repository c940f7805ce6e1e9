// A call left in the middle: its values, its exceptions, its end.
#include "base/fiber.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flush_denormals.h"
#include "base/profile.h"

namespace triptych {
namespace {

// Deep in calls, with a value on each level.
int descend(Fiber& fiber, int depth) {
  volatile int mine = depth;
  const int below = depth == 0 ? 0 : descend(fiber, depth - 1);
  fiber.suspend();
  return below + mine;
}

TEST(Fiber, GoesOnWhereItWas) {
  int sum = 0;
  Fiber fiber([&](Fiber& self) { sum = descend(self, 20); });
  int n = 0;
  while (!fiber.done()) {
    fiber.resume();
    ++n;
  }
  EXPECT_EQ(n, 22) << "21 stops and the end";
  EXPECT_EQ(sum, 210);
}

TEST(Fiber, TwoTakeTurns) {
  std::string order;
  const auto body = [&order](char name) {
    return [&order, name](Fiber& self) {
      for (int i = 0; i < 3; ++i) {
        order += name;
        self.suspend();
      }
    };
  };
  Fiber a(body('a'));
  Fiber b(body('b'));
  for (int i = 0; i < 4; ++i) {
    a.resume();
    b.resume();
  }
  EXPECT_EQ(order, "ababab");
  EXPECT_TRUE(a.done() && b.done());
}

TEST(Fiber, WhatTheBodyThrowsComesOutOfResume) {
  Fiber fiber([](Fiber& self) {
    try {
      throw std::runtime_error("inner");
    } catch (const std::runtime_error&) {
    }
    self.suspend();
    throw std::out_of_range("after the stop");
  });
  EXPECT_NO_THROW(fiber.resume());
  EXPECT_THROW(fiber.resume(), std::out_of_range);
  EXPECT_TRUE(fiber.done());
  EXPECT_THROW(fiber.resume(), Error) << "it has ended";
}

TEST(Fiber, OneThatIsDroppedIsUnwound) {
  struct Noted {
    explicit Noted(bool& flag) : flag_(flag) {}
    ~Noted() { flag_ = true; }
    bool& flag_;
  };
  bool unwound = false;
  bool went_on = false;
  bool began = false;
  {
    Fiber fiber([&](Fiber& self) {
      const Noted noted(unwound);
      self.suspend();
      went_on = true;
    });
    fiber.resume();
    EXPECT_FALSE(unwound);
    const Fiber never([&](Fiber&) { began = true; });
  }
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(went_on);
  EXPECT_FALSE(began);
}

TEST(Fiber, AnotherThreadMayGoOn) {
  std::vector<pid_t> ids;
  Fiber fiber([&](Fiber& self) {
    const ProfileZone zone("outer");
    ids.push_back(gettid());
    self.suspend();
    ids.push_back(gettid());
  });
  std::thread([&] { fiber.resume(); }).join();
  fiber.resume();
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[1], gettid());
}

TEST(Fiber, KeepsItsOwnFloatingPointMode) {
  std::array<bool, 2> inside{};
  Fiber fiber([&](Fiber& self) {
    inside[0] = flushes_denormals();
    self.suspend();
    inside[1] = flushes_denormals();
  });
  {
    const FlushDenormals on;
    fiber.resume();
  }
  EXPECT_FALSE(flushes_denormals());
  fiber.resume();
  EXPECT_TRUE(inside[0] && inside[1]);
  EXPECT_FALSE(flushes_denormals());
}

// What runs in between is nobody's part, and the time between is not the zone's.
TEST(Fiber, ZonesOfTheProfileWaitWithIt) {
  set_profile_mode(ProfileMode::kSummary);
  Fiber fiber([](Fiber& self) {
    const ProfileZone zone("long");
    self.suspend();
    const ProfileZone part("part");
  });
  fiber.resume();
  {
    const ProfileZone between("between");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  fiber.resume();
  std::vector<std::string> paths;
  std::int64_t long_ns = -1;
  for (const ProfileEntry& entry : profile_entries()) {
    paths.push_back(entry.path);
    if (entry.path == "long") long_ns = entry.total_ns;
  }
  set_profile_mode(ProfileMode::kOff);
  EXPECT_EQ(paths, (std::vector<std::string>{"between", "long", "long/part"}));
  EXPECT_GE(long_ns, 0);
  EXPECT_LT(long_ns, 20'000'000);
}

}  // namespace
}  // namespace triptych
