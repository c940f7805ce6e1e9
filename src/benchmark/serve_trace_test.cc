// Traces of requests: what is read, what is refused and how, and what make_trace draws.
#include "benchmark/serve_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"

namespace triptych {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse_trace(text, "t.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
    return error.what();
  }
  return "none";
}

TEST(ServeTrace, ReadsWhatItWrites) {
  TraceRequest full;
  full.arrival_ms = 1234.567;
  full.pictures = {{.width_px = 336, .height_px = 224, .group = 3},
                   {.width_px = 0, .height_px = 0, .group = 0, .file = "pictures/a \"b\".png"}};
  full.prompt_tokens = 40;
  full.answer_tokens = 7;
  full.prefix_group = 2;
  full.prefix_tokens = 30;
  full.tenant = "t\xC3\xA9";
  full.priority = -2;
  TraceRequest text;
  text.prompt = "What is it?\n";
  const std::vector<TraceRequest> all = {full, text};
  EXPECT_EQ(parse_trace(trace_text(all), "t.jsonl"), all);
}

TEST(ServeTrace, SkipsBlankLinesAndTakesDefaults) {
  const auto requests = parse_trace("\n  \r\n{\"prompt_tokens\": 5, \"answer_tokens\": 2}\r\n\n", "t.jsonl");
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].prompt_tokens, 5);
  EXPECT_EQ(requests[0].arrival_ms, 0);
  EXPECT_TRUE(requests[0].pictures.empty());
}

TEST(ServeTrace, RefusesByLineAndMember) {
  const std::string good = "{\"prompt_tokens\": 1, \"answer_tokens\": 1}\n";
  EXPECT_THAT(refusal_of(good + "{\"prompt_tokens\": 1}"),
              AllOf(HasSubstr("t.jsonl:2"), HasSubstr("answer_tokens")));
  EXPECT_THAT(refusal_of(good + "{\"prompt_tokens\": 0, \"answer_tokens\": 1}"),
              AllOf(HasSubstr("prompt_tokens"), HasSubstr("[1, 1048576]")));
  EXPECT_THAT(refusal_of(good + "{\"prompt_tokens\": 1, \"answer_tokens\": 1, \"max\": 1}"),
              AllOf(HasSubstr("unknown member \"max\""), HasSubstr("arrival_ms")));
  EXPECT_THAT(refusal_of("{\"prompt_tokens\": 1, \"answer_tokens\": 1, \"pictures\": [{\"width\": 3}]}"),
              AllOf(HasSubstr("pictures[0]"), HasSubstr("height")));
  EXPECT_THAT(refusal_of("{\"prompt\": \"x\", \"prompt_tokens\": 1, \"answer_tokens\": 1}"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal_of("{\"prompt_tokens\": 4, \"prefix_tokens\": 5, \"answer_tokens\": 1}"),
              HasSubstr("prefix_tokens"));
  EXPECT_THAT(refusal_of("nothing"), HasSubstr("t.jsonl:1"));
  EXPECT_THAT(refusal_of(" \n"), HasSubstr("no request"));
}

TEST(ServeTrace, MadeTracesFollowTheirSeedAndRanges) {
  TraceMix mix;
  mix.n_requests = 2000;
  mix.seed = 5;
  mix.text_share = 0.25;
  mix.repeat_share = 0.5;
  mix.n_tenants = 3;
  mix.prefix_tokens = 20;
  const auto trace = make_trace(mix);
  EXPECT_EQ(make_trace(mix), trace);
  EXPECT_EQ(parse_trace(trace_text(trace), "t"), trace);
  mix.seed = 6;
  EXPECT_NE(make_trace(mix), trace);
  int n_texts = 0, n_repeated = 0;
  std::set<std::int64_t> groups;
  std::map<std::string, std::int64_t> prefix_of;
  std::int64_t longest_prompt = 0, longest_answer = 0, shortest_answer = 1000;
  for (const TraceRequest& request : trace) {
    EXPECT_EQ(request.arrival_ms, 0);
    EXPECT_EQ(request.prefix_tokens, 20);
    EXPECT_EQ(prefix_of.try_emplace(request.tenant, request.prefix_group).first->second,
              request.prefix_group);
    EXPECT_GE(request.prompt_tokens, 30);
    longest_prompt = std::max(longest_prompt, request.prompt_tokens);
    longest_answer = std::max(longest_answer, request.answer_tokens);
    shortest_answer = std::min(shortest_answer, request.answer_tokens);
    if (request.pictures.empty()) {
      ++n_texts;
      continue;
    }
    const TracePicture& picture = request.pictures[0];
    EXPECT_EQ(picture.width_px % 112, 0);
    EXPECT_GE(picture.height_px, 224);
    EXPECT_LE(picture.height_px, 672);
    if (!groups.insert(picture.group).second) ++n_repeated;
  }
  EXPECT_EQ(prefix_of.size(), 3U);
  EXPECT_EQ(longest_prompt, 420);
  EXPECT_EQ(longest_answer, 128);
  EXPECT_EQ(shortest_answer, 16);
  EXPECT_NEAR(n_texts, 500, 80);
  EXPECT_NEAR(n_repeated, 750, 100);
}

// Of 4000 exponential times with mean 250 ms the mean is within 4 standard errors.
TEST(ServeTrace, PoissonArrivals) {
  std::vector<TraceRequest> trace(4000);
  set_poisson_arrivals(trace, 4.0, 11);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < trace.size(); ++i) {
    ASSERT_GE(trace[i].arrival_ms, trace[i - 1].arrival_ms);
    gaps.push_back(trace[i].arrival_ms - trace[i - 1].arrival_ms);
  }
  EXPECT_NEAR(trace.back().arrival_ms / 4000, 250, 4 * 250 / std::sqrt(4000.0));
  const auto n_short = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap < 250; });
  EXPECT_NEAR(static_cast<double>(n_short) / 3999, 1 - std::exp(-1.0), 0.03);
  EXPECT_THROW(set_poisson_arrivals(trace, 0, 1), Error);
}

TEST(ServeTrace, RefusesMixesThatMakeNoSense) {
  const auto is_refused = [](auto change) {
    TraceMix mix;
    change(mix);
    EXPECT_THROW(make_trace(mix), Error);
  };
  is_refused([](TraceMix& mix) { mix.n_requests = 0; });
  is_refused([](TraceMix& mix) { mix.sides_px = {}; });
  is_refused([](TraceMix& mix) { mix.sides_px = {20000}; });
  is_refused([](TraceMix& mix) { mix.prompt_tokens = {10, 9}; });
  is_refused([](TraceMix& mix) { mix.answer_tokens = {0, 9}; });
  is_refused([](TraceMix& mix) { mix.text_share = std::nan(""); });
  is_refused([](TraceMix& mix) { mix.n_tenants = 0; });
}

}  // namespace
}  // namespace triptych
