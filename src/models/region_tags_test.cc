// Regions in answers: the published forms, and everything that only looks like them.
#include "models/region_tags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace triptych {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr RegionTags kQwen{"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>"};
constexpr RegionTags kQwen2{"<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
                            "<|box_end|>",          "<|quad_start|>",     "<|quad_end|>"};

MediaPlan plan(int width, int height, int resized_width = 448, int resized_height = 448) {
  MediaPlan out;
  out.meta.width_px = width;
  out.meta.height_px = height;
  out.resized_width_px = resized_width;
  out.resized_height_px = resized_height;
  return out;
}

std::vector<Region> find(std::string_view answer, int width = 1000, int height = 1000) {
  const MediaPlan one = plan(width, height);
  return find_tagged_regions(answer, kQwen, {&one, 1});
}

TEST(RegionTags, ABoxWithItsName) {
  const auto found = find("<ref> the star </ref><box>(100,200),(300,999)</box>", 640, 333);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, RegionKind::kBox);
  EXPECT_EQ(found[0].label, "the star");
  EXPECT_EQ(found[0].media_index, 0);
  EXPECT_THAT(found[0].points_1000, ElementsAre(PointPerMille{100, 200}, PointPerMille{300, 999}));
  // int(x / 1000 * side): 66.6 -> 66, 332.667 -> 332.
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{64, 66}, PointPx{192, 332}));
}

TEST(RegionTags, CornersComeTopLeftFirst) {
  const auto found = find("<box>(900,100),(100,900)</box>");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].points_1000, ElementsAre(PointPerMille{100, 100}, PointPerMille{900, 900}));
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{100, 100}, PointPx{900, 900}));
  const MediaPlan one = plan(448, 448);
  const auto json = find_json_regions(R"({"bbox_2d": [400, 300, 4, 3], "label": "x"})", {&one, 1});
  ASSERT_THAT(json, SizeIs(1));
  EXPECT_THAT(json[0].points_px, ElementsAre(PointPx{4, 3}, PointPx{400, 300}));
}

TEST(RegionTags, BoxesAfterANameShareItUntilOtherTextComes) {
  const auto found = find(
      "There are <ref>dogs</ref><box>(1,2),(3,4)</box><box>(5,6),(7,8)</box>, <box>(9,10),(11,12)</box> and "
      "<box>(13,14),(15,16)</box><ref>a cat</ref> sleeping <box>(1,1),(2,2)</box>");
  ASSERT_THAT(found, SizeIs(5));
  EXPECT_EQ(found[0].label, "dogs");
  EXPECT_EQ(found[1].label, "dogs");
  EXPECT_EQ(found[2].label, "dogs");
  EXPECT_EQ(found[3].label, "");
  EXPECT_EQ(found[4].label, "");
}

TEST(RegionTags, QuadsAndBlanks) {
  const auto found =
      find("<ref>SHOP</ref><quad>(0,0), (1000,10),\n(990,500),(5,490)</quad><box> ( 1 , 2 ) , (3,4) </box>");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].kind, RegionKind::kQuad);
  EXPECT_THAT(found[0].points_px,
              ElementsAre(PointPx{0, 0}, PointPx{1000, 10}, PointPx{990, 500}, PointPx{5, 490}));
  EXPECT_THAT(found[1].points_1000, ElementsAre(PointPerMille{1, 2}, PointPerMille{3, 4}));
}

TEST(RegionTags, Qwen2sMarks) {
  const MediaPlan one = plan(200, 100);
  const auto found = find_tagged_regions(
      "<|object_ref_start|>the eye<|object_ref_end|><|box_start|>(500,500),(750,1000)<|box_end|>", kQwen2,
      {&one, 1});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].label, "the eye");
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{100, 50}, PointPx{150, 100}));
}

TEST(RegionTags, WhatIsMalformedStaysText) {
  for (const char* text : {"",
                           "<",
                           "<box>",
                           "<box></box>",
                           "<box>(1,2)</box>",
                           "<box>(1,2),(3,4)",
                           "<box>(1,2),(3,4)</quad>",
                           "<box>(1,2),(3,4),(5,6)</box>",
                           "<box>(1,2)(3,4)</box>",
                           "<box>1,2,3,4</box>",
                           "<box>(1.5,2),(3,4)</box>",
                           "<box>(-1,2),(3,4)</box>",
                           "<box>(1,2),(3,1001)</box>",
                           "<box>(1,2),(3,99999999999999999999)</box>",
                           "<box>(1,2),(3,)</box>",
                           "<box>(a,b),(c,d)</box>",
                           "<quad>(1,2),(3,4)</quad>",
                           "</box>(1,2),(3,4)<box>",
                           "box(1,2),(3,4)/box",
                           "<ref>a</ref>",
                           "<ref><ref></ref></ref>",
                           "<box>(+1,2),(3,4)</box>"})
    EXPECT_THAT(find(text), IsEmpty()) << text;
}

TEST(RegionTags, AMistakeDoesNotHideWhatFollows) {
  const auto found = find("<box>(1,2),<ref>x<ref>y</ref><box>(1,2),(3,4)</box></ref><box>(5,6),(7,8)</box>");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].label, "y");
  EXPECT_EQ(found[1].label, "");
}

TEST(RegionTags, TheLastPictureIsMeant) {
  std::vector<MediaPlan> plans = {plan(10, 10), plan(100, 200), plan(30, 30)};
  plans[2].meta.is_video = true;
  const auto found = find_tagged_regions("<box>(0,0),(500,500)</box>", kQwen, plans);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].media_index, 1);
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{0, 0}, PointPx{50, 100}));
  EXPECT_THAT(find_tagged_regions("<box>(0,0),(500,500)</box>", kQwen, {}), IsEmpty());
}

TEST(RegionJson, BoxesInPixelsOfTheResizedPicture) {
  const MediaPlan one = plan(1000, 500, 504, 252);
  const auto found = find_json_regions(
      "```json\n[\n\t{\"bbox_2d\": [126, 63, 252, 252], \"label\": \"a \\\"big\\\" {dog}\"},\n"
      "\t{\"point_2d\": [504, 126.0], \"label\": \"nose\"},\n\t{\"bbox_2d\": [0, 0, 9999, -5]}\n]\n```",
      {&one, 1});
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].label, "a \"big\" {dog}");
  EXPECT_THAT(found[0].points_1000, ElementsAre(PointPerMille{250, 250}, PointPerMille{500, 1000}));
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{250, 125}, PointPx{500, 500}));
  EXPECT_EQ(found[1].kind, RegionKind::kPoint);
  EXPECT_THAT(found[1].points_px, ElementsAre(PointPx{1000, 250}));
  EXPECT_EQ(found[2].label, "");
  EXPECT_THAT(found[2].points_px, ElementsAre(PointPx{0, 0}, PointPx{1000, 0}));  // at the edge
}

TEST(RegionJson, Thousandths) {
  const MediaPlan one = plan(2000, 500);
  const auto found = find_json_regions(R"({"bbox_2d": [100, 200, 500.25, 1200], "label": "x"})", {&one, 1},
                                       RegionUnit::kThousandths);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].points_1000, ElementsAre(PointPerMille{100, 200}, PointPerMille{500.25, 1000}));
  EXPECT_THAT(found[0].points_px, ElementsAre(PointPx{200, 100}, PointPx{1000, 500}));  // rounded down
}

TEST(RegionJson, WhatIsMalformedStaysText) {
  const MediaPlan one = plan(100, 100);
  for (const char* text :
       {"", "{", "}", "{}", "{\"bbox_2d\": [1, 2, 3]}", "{\"bbox_2d\": [1, 2, 3, \"4\"]}",
        "{\"bbox_2d\": [1, 2, 3, 4]", "{\"bbox_2d\": [1, 2, 3, 1e999]}", "{\"bbox_2d\": {\"x\": 1}}",
        "{\"label\": \"x\"}", "{bbox_2d: [1, 2, 3, 4]}", "{\"bbox_2d\": [1, 2, 3, 4], \"label\": \"x}"})
    EXPECT_THAT(find_json_regions(text, {&one, 1}), IsEmpty()) << text;
  // An unclosed string ends with its line.
  EXPECT_THAT(find_json_regions("{\"a\": \"x\n{\"bbox_2d\": [1, 2, 3, 4], \"label\": 7}", {&one, 1}),
              SizeIs(1));
}

// Texts put together from parts of the forms: every region that is found keeps its promises, and a
// well-formed box behind the text is found whatever stands before it.
TEST(RegionTags, PropertiesOfAnyText) {
  static constexpr std::string_view kParts[] = {"<box>(1,2),(3,4)</box>",
                                                "<quad>(1,2),(3,4),(5,6),(7,1000)</quad>",
                                                "{\"bbox_2d\": [1, 2, 3, 4]}",
                                                "<ref>",
                                                "</ref>",
                                                "<box>",
                                                "</box>",
                                                "<quad>",
                                                "</quad>",
                                                "(1,2)",
                                                "(1000,0)",
                                                "(12,",
                                                ",",
                                                " ",
                                                "\n",
                                                "(",
                                                ")",
                                                "999",
                                                "1001",
                                                "-1",
                                                "a",
                                                "\xE7\x8B\x97",
                                                "<",
                                                ">",
                                                "{\"bbox_2d\": [",
                                                "1, 2, 3, 4]",
                                                "}",
                                                "\"",
                                                "\\",
                                                "{"};
  Rng rng(7);
  std::size_t n_found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    const std::uint64_t n = rng.next_u64() % 24;
    for (std::uint64_t i = 0; i < n; ++i) text += kParts[rng.next_u64() % std::size(kParts)];
    const MediaPlan one = plan(1 + static_cast<int>(rng.next_u64() % 5000), 7);
    auto found = find_tagged_regions(text, kQwen, {&one, 1});
    const auto in_json = find_json_regions(text, {&one, 1});
    n_found += found.size() + in_json.size();
    const auto more = find_tagged_regions(text + ".<box>(7,8),(9,10)</box>", kQwen, {&one, 1});
    ASSERT_EQ(more.size(), found.size() + 1) << text;
    EXPECT_EQ(more.back().label, "");
    found.insert(found.end(), in_json.begin(), in_json.end());
    for (const Region& region : found) {
      const std::size_t n_points = region.kind == RegionKind::kPoint ? 1U
                                   : region.kind == RegionKind::kBox ? 2U
                                                                     : 4U;
      ASSERT_EQ(region.points_1000.size(), n_points);
      ASSERT_EQ(region.points_px.size(), n_points);
      for (std::size_t i = 0; i < n_points; ++i) {
        EXPECT_TRUE(region.points_1000[i].x >= 0 && region.points_1000[i].x <= 1000) << text;
        EXPECT_TRUE(region.points_px[i].x >= 0 && region.points_px[i].x <= one.meta.width_px) << text;
        EXPECT_TRUE(region.points_px[i].y >= 0 && region.points_px[i].y <= one.meta.height_px) << text;
      }
    }
  }
  EXPECT_GT(n_found, 100U);  // the parts do make regions
}

}  // namespace
}  // namespace triptych
