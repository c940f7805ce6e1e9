// What clients and the system do to a server: it serves on, and answers as before. The heavy ones are in
// tools/serve_faults.py.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

json body_of(int max_tokens, bool stream) {
  return {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
          {"max_tokens", max_tokens},
          {"temperature", 0},
          {"ignore_eos", true},
          {"stream", stream}};
}
std::string stream_of(int max_tokens) {
  return http_request("POST", "/v1/chat/completions", body_of(max_tokens, true).dump());
}

class ServeFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ServerProcess>(); }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override { before_ = good(); }
  // Whatever happened, nothing is left of it, and the next answer is the same.
  void TearDown() override {
    EXPECT_EQ(good(), before_);
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (server_->metric("triptych_num_requests_running") > 0 && std::chrono::steady_clock::now() < end)
      usleep(5000);
    EXPECT_EQ(server_->metric("triptych_num_requests_running"), 0);
    EXPECT_EQ(server_->metric("triptych_num_requests_waiting"), 0);
  }
  static std::string good() {
    const HttpReply reply = server_->post("/v1/chat/completions", body_of(12, false));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? reply.json()["choices"][0]["message"]["content"].get<std::string>() : "";
  }
  static std::unique_ptr<ServerProcess> server_;
  std::string before_;
};
std::unique_ptr<ServerProcess> ServeFaults::server_;

TEST_F(ServeFaults, StreamsThatAreCancelled) {
  for (int i = 0; i < 40; ++i) {
    HttpConnection connection(server_->port());
    connection.send(stream_of(200));
    if (i % 2 == 0) {
      EXPECT_TRUE(connection.read_until("data:"));
    }
    connection.close();
  }
}

// A process that is stopped in the midst of a stream, as by Ctrl-Z: others are answered, and it gets the rest
// when it goes on.
TEST_F(ServeFaults, AClientThatIsStopped) {
  int begun[2];
  ASSERT_EQ(pipe(begun), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    HttpConnection connection(server_->port());
    connection.send(stream_of(100));
    const bool has_begun = connection.read_until("data:");
    const bool is_told = write(begun[1], "x", 1) == 1;
    _exit(has_begun && is_told && connection.read_until("[DONE]") ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  EXPECT_EQ(good(), before_);
  kill(child, SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(begun[0]);
  close(begun[1]);
}

// No more connections than there are descriptors; those that wait are accepted when others have gone.
TEST_F(ServeFaults, NoDescriptorsLeft) {
  rlimit usual{};
  ASSERT_EQ(prlimit(server_->pid(), RLIMIT_NOFILE, nullptr, &usual), 0);
  const auto n_open = static_cast<rlim_t>(
      std::distance(std::filesystem::directory_iterator("/proc/" + std::to_string(server_->pid()) + "/fd"),
                    std::filesystem::directory_iterator()));
  const rlimit few{n_open + 4, usual.rlim_max};
  ASSERT_EQ(prlimit(server_->pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<std::unique_ptr<HttpConnection>> all;
  for (int i = 0; i < 24; ++i) all.push_back(std::make_unique<HttpConnection>(server_->port()));
  all.front()->send(http_request("GET", "/live"));
  EXPECT_EQ(all.front()->read_reply().status, 200);
  all.back()->send(http_request("GET", "/live"));  // waits at the door
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->close();
  EXPECT_EQ(all.back()->read_reply().status, 200);
  ASSERT_EQ(prlimit(server_->pid(), RLIMIT_NOFILE, &usual, nullptr), 0);
}

}  // namespace
}  // namespace triptych::test
