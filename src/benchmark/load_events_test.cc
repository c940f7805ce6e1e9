// Events of streams: however the bytes are cut, and what is read of them.
#include "benchmark/load_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

TEST(LoadEvents, LinesAreFoundWhereverBytesAreCut) {
  const std::string text =
      "data: {\"a\":1}\r\n\r\n: a comment\nevent: x\ndata:b\n\ndata: [DONE]\n\ndata: no end";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    EventLines lines;
    std::vector<std::string> found;
    for (std::size_t at = 0; at < text.size(); at += size)
      lines.feed(std::string_view(text).substr(at, size),
                 [&](std::string_view data) { found.emplace_back(data); });
    EXPECT_THAT(found, testing::ElementsAre("{\"a\":1}", "b", "[DONE]")) << size;
  }
  EventLines endless;
  const std::string much(std::size_t{1} << 20, 'x');
  EXPECT_THROW(for (int i = 0; i < 5; ++i) endless.feed(much, [](std::string_view) {}), Error);
}

TEST(LoadEvents, ReadsTextUsageStagesAndErrors) {
  EXPECT_TRUE(read_chat_event("[DONE]").is_last);
  EXPECT_FALSE(read_chat_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})").has_text);
  EXPECT_TRUE(read_chat_event(R"({"choices":[{"delta":{"content":"a"}}],"usage":null})").has_text);
  EXPECT_TRUE(
      read_chat_event(R"({"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]})").has_text);
  const ChatEvent last = read_chat_event(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":
          {"image_tokens":4,"cached_tokens":2}},"timings":{"decode_ms":1.5,"queue_ms":"x"}})");
  EXPECT_FALSE(last.has_text);
  EXPECT_EQ(last.n_prompt_tokens, 7);
  EXPECT_EQ(last.n_answer_tokens, 3);
  EXPECT_EQ(last.n_image_tokens, 4);
  EXPECT_EQ(last.n_cached_tokens, 2);
  EXPECT_EQ(last.timings.decode_ms, 1.5);
  EXPECT_EQ(last.timings.queue_ms, 0);
  EXPECT_EQ(read_chat_event(R"({"error":{"message":"no memory"}})").error, "no memory");
  EXPECT_EQ(read_chat_event(R"({"error":"no"})").error, "no");
  for (const char* bad : {"", "3", "{", R"({"choices":3})", R"({"usage":{"prompt_tokens":-1}})"})
    EXPECT_THROW(read_chat_event(bad), Error) << bad;
  EXPECT_EQ(refusal_message(R"({"error":{"message":"the queue is full"}})"), "the queue is full");
  EXPECT_EQ(refusal_message("<h1>Bad gateway</h1>"), "<h1>Bad gateway</h1>");
}

}  // namespace
}  // namespace triptych
