// The HTML report: escaping, the arithmetic of its charts, and a file that parses.
#include "cli/bench_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cli/heat_map.h"
#include "cli/html_text.h"
#include "cli/roofline_chart.h"

namespace triptych::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const MachineLimits kLimits{.n_threads = 2,
                            .fp32_flops_per_s = 2e11,
                            .read_bytes_per_s = 2e10,
                            .int8_ops_per_s = 9e11,
                            .bf16_flops_per_s = 4e11};

TEST(HtmlText, EscapesMarkupControlsAndWhatIsNotUtf8) {
  EXPECT_EQ(html_escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(html_escape("\x1b[2J\x01"), "\xEF\xBF\xBD[2J\xEF\xBF\xBD");
  EXPECT_EQ(html_escape("caf\xC3\xA9\n"), "caf\xC3\xA9\n");
  EXPECT_EQ(html_escape("\xFF\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(html_escape("\xEF\xBF\xBE"), "\xEF\xBF\xBD");
  EXPECT_EQ(html_escape(""), "");
}

TEST(Roofline, PointsAreWhatTheCostsSay) {
  const std::vector<BenchPart> parts = {
      {"prefill", "norm", 2, 1.0, {}},
      {"prefill", "mlp.down_proj", 2, 4.0, {.flops = 1e9, .int8_ops = 3e9, .bytes = 1e8}},
      {"decode", "attention", 2, 0, {.flops = 1e6, .int8_ops = 0, .bytes = 1e6}}};
  const std::vector<RooflinePoint> points = roofline_points(parts);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].number, 1);
  EXPECT_EQ(points[0].part, &parts[1]);
  EXPECT_DOUBLE_EQ(points[0].ops_per_byte, 40);
  EXPECT_DOUBLE_EQ(points[0].ops_per_s, 1e12);
}

TEST(Roofline, TheRidgeIsWhereTheSlopeMeetsTheCeiling) {
  const std::string svg = roofline_svg({}, kLimits);
  // The slope's upper end and the beginning of int8's ceiling are one point of the chart.
  const std::regex line("class=\"roof\" x1=\"([0-9.]+)\" y1=\"([0-9.]+)\" x2=\"([0-9.]+)\" y2=\"([0-9.]+)\"");
  std::vector<std::smatch> lines;
  for (std::sregex_iterator it(svg.begin(), svg.end(), line), end; it != end; ++it) lines.push_back(*it);
  ASSERT_EQ(lines.size(), 4U);  // int8, bf16, fp32, read
  EXPECT_EQ(lines[0][1], lines[3][3]);
  EXPECT_EQ(lines[0][2], lines[3][4]);
  EXPECT_LT(std::stod(lines[0][2]), std::stod(lines[1][2]));  // int8 lies higher, so its y is smaller
  EXPECT_LT(std::stod(lines[1][2]), std::stod(lines[2][2]));
  MachineLimits few = kLimits;
  few.bf16_flops_per_s = few.int8_ops_per_s = 0;
  EXPECT_THAT(roofline_svg({}, few), Not(HasSubstr("int8")));
  EXPECT_THAT(roofline_svg({}, MachineLimits{}), HasSubstr("</svg>"));
}

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

// Every tag is closed in order, every attribute quoted, and nothing is fetched.
void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:\\s+[a-zA-Z][a-zA-Z0-9:-]*=\"[^\"<]*\")*)\\s*(/?)>");
  std::size_t at = html.find('<', 1);  // behind the document type
  while (at != std::string::npos) {
    std::smatch match;
    const std::string rest = html.substr(at, 2000);
    ASSERT_TRUE(std::regex_search(rest, match, tag, std::regex_constants::match_continuous))
        << rest.substr(0, 200);
    if (match[1] == "/") {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), match[2]);
      open.pop_back();
    } else if (match[4] != "/") {
      open.push_back(match[2]);
    }
    at = html.find('<', at + 1);
  }
  EXPECT_TRUE(open.empty());
  for (const char* outside : {"src=", "href=", "url(", "@import", "<script"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(BenchHtml, IsOneWellFormedFileAndEscapesNames) {
  BenchRun run;
  run.model = "</h2><script>alert(1)</script> & \"x\"";
  run.weights = "int8'";
  run.report.stages = {{.name = "prefill",
                        .ms = 5,
                        .lowest_ms = 5,
                        .highest_ms = 5,
                        .n_items = 20,
                        .unit = "tokens",
                        .cost = {.flops = 1e9, .int8_ops = 0, .bytes = 1e7}}};
  run.report.parts = {{"prefill", "down", 2, 4.0, {.flops = 1e9, .int8_ops = 0, .bytes = 1e7}},
                      {"prefill", "<qkv>", 2, 1.0, {.flops = 1e8, .int8_ops = 0, .bytes = 1e6}}};
  run.report.timeline = two_threads();
  const std::string html = bench_html({run, run}, kLimits);
  ASSERT_THAT(html, testing::StartsWith("<!DOCTYPE html>\n"));
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, HasSubstr("&lt;qkv&gt;"));
  EXPECT_THAT(html, HasSubstr("class=\"roofline\""));
  EXPECT_THAT(html, HasSubstr("class=\"heat\""));
  run.report.parts.clear();
  run.report.timeline.clear();
  expect_well_formed(bench_html({run}, MachineLimits{}));
}

}  // namespace
}  // namespace triptych::cli
