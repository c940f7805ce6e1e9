// Limits of keys over HTTP.
#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kQuestion = R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":2})";

HttpReply ask(const ServerProcess& server, const std::string& key) {
  return server.ask(http_request("POST", "/v1/chat/completions", kQuestion,
                                 "Content-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n"));
}

TEST(ServeKeys, HaveLimitsOfTheirOwn) {
  const Scratch scratch;
  const std::string keys = scratch.path() / "keys";
  write_file(
      keys, "free-key\nonce-key name=once requests_per_minute=1\nfew-key tokens_per_minute=1 # no comment\n");
  RunResult broken = triptych({"serve", kModel.string(), "--api-key-file", keys});
  EXPECT_NE(broken.exit_code, 0);
  EXPECT_THAT(broken.err, HasSubstr(keys + ":3: expected"));
  EXPECT_THAT(broken.err, Not(HasSubstr("few-key")));
  write_file(keys, "free-key\nonce-key name=once requests_per_minute=1\nfew-key tokens_per_minute=1\n");
  const ServerProcess server({"--api-key-file", keys});
  const auto expect_limited = [&](const std::string& key, const std::string& what) {
    EXPECT_EQ(ask(server, key).status, 200) << key;
    const HttpReply second = ask(server, key);
    ASSERT_EQ(second.status, 429) << second.body;
    EXPECT_GE(std::stoi(second.header("retry-after")), 1);
    EXPECT_EQ(second.json()["error"]["code"], "rate_limit_exceeded");
    EXPECT_EQ(second.json()["error"]["type"], "rate_limit_error");
    EXPECT_THAT(second.json()["error"]["message"].get<std::string>(), HasSubstr(what));
  };
  expect_limited("once-key", "1 times a minute");
  expect_limited("few-key", "1 tokens a minute");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(server, "free-key").status, 200);
  EXPECT_EQ(ask(server, "other-key").status, 401);
}

}  // namespace
}  // namespace triptych::test
