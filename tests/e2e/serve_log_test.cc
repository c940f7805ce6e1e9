// What `triptych serve` writes on stderr: a line a request, and nothing that was not asked for.
#include <sstream>

#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kQuestion =
    R"({"messages":[{"role":"user","content":"a private matter"}],"max_tokens":2})";

// The lines of a server that answers a good request, the same again, a bad one and one that is no HTTP.
std::string lines_of(const std::vector<std::string>& args) {
  const Scratch scratch;
  write_file(scratch.path() / "keys", "very-secret-key name=alice\n");
  std::vector<std::string> all = {"--api-key-file", scratch.path() / "keys"};
  all.insert(all.end(), args.begin(), args.end());
  testing::internal::CaptureStderr();
  {
    ServerProcess server(all);
    const auto ask = [&](const std::string& headers) {
      return server.ask(http_request("POST", "/v1/chat/completions", kQuestion,
                                     "Content-Type: application/json\r\n" + headers));
    };
    const std::string key = "Authorization: Bearer very-secret-key\r\n";
    EXPECT_EQ(ask(key + "X-Request-Id: mine-1\r\n").header("x-request-id"), "mine-1");
    EXPECT_THAT(ask(key).header("x-request-id"), StartsWith("req-"));
    const HttpReply refused = ask("Authorization: Bearer wrong-secret\r\n");
    EXPECT_EQ(refused.status, 401);
    EXPECT_THAT(refused.header("x-request-id"), StartsWith("req-"));
    EXPECT_THAT(server.ask("nonsense\r\n\r\n").header("x-request-id"), StartsWith("req-"));
    server.terminate();
    EXPECT_EQ(server.exit_code(), 0);
  }
  std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, Not(HasSubstr("secret")));
  return out;
}

TEST(ServeLog, HasALineOfJsonForEachRequest) {
  std::istringstream lines(lines_of({"--log-format", "json", "--log-requests", "hash"}));
  std::vector<json> requests;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, Not(HasSubstr("private")));
    const json one = json::parse(line);  // every line is one
    if (one["message"] == "request") requests.push_back(one);
  }
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0]["id"], "mine-1");
  EXPECT_EQ(requests[0]["key"], "alice");
  EXPECT_EQ(requests[0]["route"], "/v1/chat/completions");
  EXPECT_EQ(requests[0]["status"], 200);
  EXPECT_EQ(requests[0]["completion_tokens"], 2);
  EXPECT_GT(requests[0]["prompt_tokens"], 2);
  EXPECT_EQ(requests[0]["body_hash"], requests[1]["body_hash"]);
  EXPECT_NE(requests[0]["id"], requests[1]["id"]);
  EXPECT_EQ(requests[2]["status"], 401);
  EXPECT_FALSE(requests[2].contains("key"));
  EXPECT_EQ(requests[3]["status"], 400);
}

TEST(ServeLog, HasTheTextOnlyWhenItIsWanted) {
  EXPECT_THAT(lines_of({}), Not(HasSubstr("request id=")));
  const std::string text = lines_of({"--log-requests", "text"});
  EXPECT_THAT(text, HasSubstr("request id=mine-1 method=POST"));
  EXPECT_THAT(text, HasSubstr("a private matter"));
}

}  // namespace
}  // namespace triptych::test
