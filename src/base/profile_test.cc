#include "base/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/thread_pool.h"

namespace triptych {
namespace {

void busy(int us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  while (std::chrono::steady_clock::now() < end) {
  }
}

const ProfileEntry* find(const std::vector<ProfileEntry>& entries, const std::string& path) {
  for (const ProfileEntry& e : entries)
    if (e.path == path) return &e;
  return nullptr;
}

class ProfileTest : public testing::Test {
 protected:
  void TearDown() override { set_profile_mode(ProfileMode::kOff); }
};

TEST_F(ProfileTest, RecordsNothingWhenOff) {
  set_profile_mode(ProfileMode::kSummary);
  set_profile_mode(ProfileMode::kOff);
  { ProfileZone zone("decode"); }
  EXPECT_TRUE(profile_entries().empty());
}

TEST_F(ProfileTest, NestedZonesFormATree) {
  set_profile_mode(ProfileMode::kSummary);
  for (int i = 0; i < 3; ++i) {
    ProfileZone outer("prefill");
    busy(500);
    for (int j = 0; j < 2; ++j) {
      ProfileZone inner("linear");
      busy(1000);
    }
  }
  { ProfileZone zone("linear"); }
  set_profile_mode(ProfileMode::kOff);
  const auto entries = profile_entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].path, "prefill");
  EXPECT_EQ(entries[1].path, "prefill/linear");
  EXPECT_EQ(entries[1].depth, 1);
  EXPECT_EQ(entries[2].path, "linear");
  EXPECT_EQ(entries[0].count, 3);
  EXPECT_EQ(entries[1].count, 6);
  EXPECT_GE(entries[1].total_ns, 6'000'000);
  EXPECT_GE(entries[0].total_ns, entries[1].total_ns + 1'500'000);
  EXPECT_EQ(entries[0].self_ns, entries[0].total_ns - entries[1].total_ns);
  EXPECT_EQ(entries[1].self_ns, entries[1].total_ns);
  EXPECT_LE(entries[0].total_ns, profile_wall_ns());
  EXPECT_NEAR(entries[0].share,
              static_cast<double>(entries[0].total_ns) / static_cast<double>(profile_wall_ns()), 1e-9);
  const std::string report = profile_report();
  EXPECT_NE(report.find("\n  linear "), std::string::npos) << report;
  EXPECT_NE(report.find("wall"), std::string::npos);
}

TEST_F(ProfileTest, ThreadsAreAddedEvenAfterTheyEnd) {
  set_profile_mode(ProfileMode::kSummary);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) {
        ProfileZone outer("vision");
        ProfileZone inner("attention");
      }
    });
  for (int i = 0; i < 20; ++i) profile_entries();  // a report while they run
  for (std::thread& thread : threads) thread.join();
  const auto entries = profile_entries();
  ASSERT_NE(find(entries, "vision/attention"), nullptr);
  EXPECT_EQ(find(entries, "vision")->count, 4000);
  EXPECT_EQ(find(entries, "vision/attention")->count, 4000);
}

TEST_F(ProfileTest, SwitchingOnAgainStartsAfresh) {
  set_profile_mode(ProfileMode::kSummary);
  { ProfileZone zone("vision"); }
  ProfileZone open("decode");
  set_profile_mode(ProfileMode::kOff);
  set_profile_mode(ProfileMode::kSummary);
  { ProfileZone zone("projector"); }
  const auto entries = profile_entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, "projector");
}

TEST_F(ProfileTest, TraceIsValidJson) {
  set_profile_mode(ProfileMode::kTrace);
  {
    ProfileZone outer("image \"decode\"");
    ProfileZone inner("png");
    busy(100);
  }
  std::thread([] { ProfileZone zone("tokenizer"); }).join();
  std::ostringstream out;
  write_chrome_trace(out);
  const Json trace = parse_json(out.str(), "trace");
  ASSERT_EQ(trace.size(), 3u);
  int n_found = 0;
  for (const Json& event : trace) {
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (event.at("name") == "png") {
      ++n_found;
      EXPECT_GE(event.at("dur").get<double>(), 100);
    }
    if (event.at("name") == "image \"decode\"") ++n_found;
    if (event.at("name") == "tokenizer") ++n_found;
  }
  EXPECT_EQ(n_found, 3);
}

TEST_F(ProfileTest, SpansAreEventsButNoZones) {
  set_profile_mode(ProfileMode::kTrace);
  EXPECT_EQ(profile_traced_zone(), nullptr);
  {
    ProfileZone outer("prefill");
    ProfileZone inner("linear");
    EXPECT_STREQ(profile_traced_zone(), "linear");
    const std::int64_t start_ns = profile_clock_ns();
    busy(200);
    profile_span("wait", start_ns);
  }
  const auto events = profile_events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "wait");
  EXPECT_GE(events[0].duration_ns, 200'000);
  EXPECT_GE(events[0].start_ns, events[1].start_ns);
  EXPECT_EQ(events[0].thread, events[1].thread);
  EXPECT_EQ(profile_entries().size(), 2u);
  set_profile_mode(ProfileMode::kOff);
  set_profile_mode(ProfileMode::kSummary);
  const ProfileZone zone("prefill");
  EXPECT_EQ(profile_traced_zone(), nullptr) << "events are not recorded";
}

TEST_F(ProfileTest, PoolsTellWhatTheirWorkersDid) {
  ThreadPool pool(3);
  const auto work = [&] {
    const ProfileZone zone("linear");
    pool.run([](int, int) { busy(300); });
    pool.parallel_for(64, 1, [](std::size_t, std::size_t, int) { busy(50); });
  };
  set_profile_mode(ProfileMode::kTrace);
  work();
  pool.run([](int, int) {});  // outside of any zone: nothing to say
  std::map<std::string, int> counts;
  std::set<int> workers;
  for (const ProfileEvent& event : profile_events()) {
    ++counts[event.name];
    EXPECT_GE(event.start_ns, 0);
    if (event.name == "linear") workers.insert(event.thread);
  }
  EXPECT_EQ(counts["wait"], 2);
  EXPECT_GE(counts["linear"], 1 + 2);  // the caller's zone; both workers ran run()
  EXPECT_EQ(workers.size(), 3u);
  EXPECT_EQ(profile_entries().size(), 1u) << "workers' time is no second zone of the report";
  set_profile_mode(ProfileMode::kOff);
  set_profile_mode(ProfileMode::kSummary);
  work();
  EXPECT_TRUE(profile_events().empty());
}

// The caller works but when it waits; a worker works in the caller's outermost zone; a thread that ended is
// there, too.
TEST_F(ProfileTest, BusyTimeByThreadZoneAndStretch) {
  ThreadPool pool(2);
  set_profile_mode(ProfileMode::kBusy);
  {
    const ProfileZone top("prefill");
    const ProfileZone inner("projector");
    EXPECT_STREQ(profile_traced_zone(), "prefill");
    pool.run([](int thread, int) { busy(thread == 0 ? 1000 : 21000); });
  }
  std::thread([] {
    const ProfileZone zone("preprocess");
    busy(2000);
  }).join();
  const std::int64_t wall_ns = profile_wall_ns();
  std::map<std::string, std::vector<double>> busy_ms;  // by zone, of each thread
  std::set<int> threads;
  for (const ProfileBusy& one : profile_busy()) {
    double sum_ns = 0;
    for (const float ns : one.busy_ns) {
      EXPECT_LE(ns, 1.01F * static_cast<float>(kBusyStretch_ns));
      sum_ns += static_cast<double>(ns);
    }
    busy_ms[one.zone].push_back(sum_ns / 1e6);
    threads.insert(one.thread);
    EXPECT_LE(one.busy_ns.size(), static_cast<std::size_t>(wall_ns / kBusyStretch_ns) + 1);
  }
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_EQ(busy_ms.count("projector"), 0U) << "it lies in another zone";
  ASSERT_EQ(busy_ms["prefill"].size(), 2U);
  std::sort(busy_ms["prefill"].begin(), busy_ms["prefill"].end());
  EXPECT_GE(busy_ms["prefill"][1], 21.0);
  EXPECT_LT(busy_ms["prefill"][0], busy_ms["prefill"][1]) << "the caller waited";
  ASSERT_EQ(busy_ms["preprocess"].size(), 1U);
  EXPECT_GE(busy_ms["preprocess"][0], 2.0);
  EXPECT_TRUE(profile_events().empty());
}

// A zone that is off tests one flag. One that read the clock or took a lock would cost more than a fifth of
// one that is on, which reads the clock twice; the shortest of many rounds is compared, whatever else runs.
TEST_F(ProfileTest, OffIsNearlyFree) {
  const auto shortest_round_ns = [] {
    std::int64_t out = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < 200; ++round) {
      const std::int64_t start_ns = profile_clock_ns();
      for (int i = 0; i < 500; ++i) ProfileZone zone("linear");
      out = std::min(out, profile_clock_ns() - start_ns);
    }
    return out;
  };
  const std::int64_t off_ns = shortest_round_ns();
  set_profile_mode(ProfileMode::kSummary);
  const std::int64_t on_ns = shortest_round_ns();
  EXPECT_LT(off_ns * 10, on_ns);
}

}  // namespace
}  // namespace triptych
