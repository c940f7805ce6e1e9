#include "report/heat_map.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

// Thread 1 calls: a prefill of 1000 ns with two products, then a decode. Thread 2 helps with the first.
std::vector<ProfileEvent> two_threads() {
  return {{"prefill", 1, 1000, 1000}, {"down", 1, 1000, 400}, {"wait", 1, 1300, 100},
          {"qkv", 1, 1400, 500},      {"down", 2, 1000, 400}, {"qkv", 2, 1400, 250},
          {"decode", 1, 3000, 100},   {"down", 1, 3000, 100}, {"unrelated", 3, 0, 9000}};
}

TEST(HeatMap, BusySharesOfBins) {
  const HeatMaps maps = make_heat_maps(two_threads(), {"down", "qkv"}, 3, 10);
  ASSERT_EQ(maps.maps.size(), 2U);
  EXPECT_EQ(maps.maps[0].title, "prefill");
  EXPECT_EQ(maps.maps[0].duration_ns, 1000);
  EXPECT_EQ(maps.maps[1].title, "one decoded token");
  ASSERT_EQ(maps.maps[0].rows.size(), 3U);
  EXPECT_EQ(maps.maps[0].rows[2].busy_share, 0) << "the third thread did nothing";
  EXPECT_EQ(maps.maps[0].rows[2].cells.at(0).zone, -1);
  EXPECT_EQ(maps.maps[1].rows.size(), 3U);
  const HeatMap::Row& caller = maps.maps[0].rows[0];
  const HeatMap::Row& worker = maps.maps[0].rows[1];
  EXPECT_EQ(caller.thread, 1);
  EXPECT_EQ(worker.thread, 2);
  EXPECT_NEAR(caller.busy_share, 0.9, 1e-9);   // but for the wait
  EXPECT_NEAR(worker.busy_share, 0.65, 1e-9);  // 400 + 250
  EXPECT_NEAR(caller.cells[3].busy_share, 0.0, 1e-9);
  EXPECT_NEAR(caller.cells[2].busy_share, 1.0, 1e-9);
  EXPECT_NEAR(worker.cells[6].busy_share, 0.5, 1e-9);
  EXPECT_EQ(worker.cells[8].zone, -1);
  // Longest first, "between operations" last: qkv 500 + 250 + ... against down 400 + 400 + 100.
  EXPECT_EQ(maps.zones, (std::vector<std::string>{"down", "qkv", "between operations"}));
  EXPECT_NEAR(maps.zone_ms[0], 900e-6, 1e-12);
  EXPECT_NEAR(maps.zone_ms[1], 750e-6, 1e-12);
  EXPECT_NEAR(maps.zone_ms[2], 100e-6, 1e-12);
  EXPECT_EQ(worker.cells[0].zone, 0);
  EXPECT_EQ(worker.cells[5].zone, 1);
  EXPECT_EQ(caller.cells[9].zone, 2);
}

TEST(HeatMap, NoEventsNoMaps) {
  EXPECT_TRUE(make_heat_maps({}, {}, 2, 10).maps.empty());
  EXPECT_TRUE(make_heat_maps({{"down", 1, 0, 10}}, {"down"}, 2, 0).maps.empty());
}

TEST(BusyMap, BinsOfStretchesByThreadAndZone) {
  const auto ms = static_cast<float>(1e6);
  // Eight stretches of 5 ms in four bins.
  const std::vector<ProfileBusy> busy = {
      {.thread = 2, .thread_name = "main", .zone = "decode", .busy_ns = {5 * ms, 5 * ms, 0, 0, 1 * ms}},
      {.thread = 2,
       .thread_name = "main",
       .zone = "vision",
       .busy_ns = {0, 0, 4 * ms, 3 * ms, 2 * ms, -1 * ms}},
      {.thread = 1, .thread_name = "w", .zone = "decode", .busy_ns = {0, 5 * ms}}};
  const HeatMaps maps = make_busy_map(busy, 8 * kBusyStretch_ns, 4,
                                      [](const std::string& name, const std::set<std::string>& zones) {
                                        return name + std::to_string(zones.size());
                                      });
  EXPECT_EQ(maps.zones, (std::vector<std::string>{"decode", "vision"}));
  ASSERT_EQ(maps.maps.size(), 1U);
  const std::vector<HeatMap::Row>& rows = maps.maps[0].rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].label, "main2");
  EXPECT_EQ(rows[1].label, "w1");
  ASSERT_EQ(rows[0].cells.size(), 4U);
  EXPECT_NEAR(rows[0].cells[0].busy_share, 1.0, 1e-6);
  EXPECT_EQ(rows[0].cells[0].zone, 0);
  EXPECT_NEAR(rows[0].cells[1].busy_share, 0.7, 1e-6);
  EXPECT_EQ(rows[0].cells[1].zone, 1);
  EXPECT_NEAR(rows[0].cells[2].busy_share, 0.3, 1e-6);
  EXPECT_EQ(rows[0].cells[2].zone, 1);
  EXPECT_EQ(rows[0].cells[3].zone, -1);
  EXPECT_NEAR(rows[1].busy_share, 5.0 / 40, 1e-6);
  EXPECT_NE(heat_maps_html(maps).find(">w1</text>"), std::string::npos);
  EXPECT_TRUE(make_busy_map({}, 0, 10, nullptr).maps[0].rows.empty());
}

}  // namespace
}  // namespace triptych
