#include "server/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log_event.h"

namespace triptych::server {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string logged(LogFormat format, const RequestRecord& record) {
  set_log_format(format);
  testing::internal::CaptureStderr();
  log_request(record);
  log_message(LogLevel::kWarning, "a \"warning\"\nof two lines");
  set_log_format(LogFormat::kText);
  return testing::internal::GetCapturedStderr();
}

const RequestRecord kRecord{.id = "req-1",
                            .method = "POST",
                            .route = "/v1/chat/completions",
                            .key_name = "a b",
                            .body_text = "{\"x\":\n1}",
                            .n_body_bytes = 8,
                            .status = 200,
                            .ms = 1.5,
                            .counts = {.n_prompt_tokens = 7, .n_answer_tokens = 3}};

TEST(RequestLog, IsALineOfJson) {
  const std::string text = logged(LogFormat::kJson, kRecord);
  const std::size_t end = text.find('\n');
  const Json line = Json::parse(text.substr(0, end));
  EXPECT_EQ(line["level"], "info");
  EXPECT_EQ(line["message"], "request");
  EXPECT_EQ(line["id"], "req-1");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["ms"], 1.5);
  EXPECT_EQ(line["key"], "a b");
  EXPECT_EQ(line["body"], "{\"x\":\n1}");
  EXPECT_EQ(line["completion_tokens"], 3);
  EXPECT_EQ(line["time"].get<std::string>().size(), 24U);
  const Json second = Json::parse(text.substr(end + 1));
  EXPECT_EQ(second["level"], "warning");
  EXPECT_EQ(second["message"], "a \"warning\"\nof two lines");
}

// A client cannot write lines of its own.
TEST(RequestLog, IsALineOfText) {
  const std::string text = logged(LogFormat::kText, kRecord);
  EXPECT_THAT(text,
              StartsWith("info: request id=req-1 method=POST route=/v1/chat/completions status=200 ms=1.5 "
                         "body_bytes=8 key=\"a b\" body=\"{\\\"x\\\":\\n1}\" prompt_tokens=7"));
}

TEST(RequestLog, LeavesPicturesAndLongTextsOut) {
  EXPECT_EQ(text_of_body("say \"data:image/png;base64," + std::string(1000, 'A') + "\" now"),
            "say \"data:image/png;base64,<1000 characters>\" now");
  const std::string words = text_of_body(std::string(5000, ' ') + "word " + std::string(20000, '.'));
  EXPECT_LT(words.size(), 17000U);
  EXPECT_THAT(words, HasSubstr("more bytes>"));
}

TEST(RequestLog, HashesTellEqualBodiesAndNoMore) {
  EXPECT_EQ(hash_of_body("a").size(), 16U);
  EXPECT_EQ(hash_of_body("a"), hash_of_body("a"));
  EXPECT_NE(hash_of_body("a"), hash_of_body("b"));
}

TEST(RequestLog, KeepsUsableIdsOfClients) {
  const auto id = [](const std::string& own) {
    HttpRequest request;
    request.headers = {{"x-request-id", own}};
    return request_id_of(request);
  };
  EXPECT_EQ(id("abc-1.2:3_4"), "abc-1.2:3_4");
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\r\nX: y"), std::string(200, 'a')})
    EXPECT_THAT(id(bad), StartsWith("req-"));
}

}  // namespace
}  // namespace triptych::server
