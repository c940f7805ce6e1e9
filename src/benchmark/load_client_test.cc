// The load generator against a server that says what a script says: answers cut anywhere, refusals, answers
// that end early, connections that are closed between two requests.
#include "benchmark/load_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "benchmark/load_report.h"
#include "benchmark/load_requests.h"
#include "benchmark/testing/well_formed.h"

namespace triptych {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kCut = "cut here";  // behind an answer: the connection ends

// Answers each request of each connection with what `script` gives for its body; "" closes the connection.
// Ends connections when `max_requests` of them were answered.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::function<std::string(const std::string& body)> script, int max_requests = 1000)
      : script_(std::move(script)), max_requests_(max_requests) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0)
      throw std::runtime_error("listen");
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] {
      for (int fd = 0; (fd = ::accept(listener_, nullptr, nullptr)) >= 0;)
        threads_.emplace_back([this, fd] { answer(fd); });
    });
  }
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }
  LoadTarget target() const { return {"127.0.0.1", port_, ""}; }
  std::vector<std::string> heads() {
    const std::lock_guard lock(mutex_);
    return heads_;
  }

 private:
  void answer(int fd) {
    std::string in;
    for (int n_answered = 0; n_answered < max_requests_; ++n_answered) {
      std::size_t end = 0, n_body = 0;
      while (true) {
        end = in.find("\r\n\r\n");
        if (end != std::string::npos) {
          const std::size_t at = in.find("Content-Length: ");
          n_body = at < end ? std::stoul(in.substr(at + 16)) : 0;
          if (in.size() >= end + 4 + n_body) break;
        }
        char chunk[4096];
        const ssize_t n = ::recv(fd, chunk, sizeof(chunk), 0);
        if (n <= 0) {
          ::close(fd);
          return;
        }
        in.append(chunk, static_cast<std::size_t>(n));
      }
      {
        const std::lock_guard lock(mutex_);
        heads_.push_back(in.substr(0, end));
      }
      const std::string out = script_(in.substr(end + 4, n_body));
      in.erase(0, end + 4 + n_body);
      if (out.empty()) break;
      for (std::size_t at = 0; at < out.size(); at += 7)  // so that nothing comes in one piece
        ::send(fd, out.data() + at, std::min<std::size_t>(7, out.size() - at), MSG_NOSIGNAL);
      if (out.ends_with(kCut)) break;
    }
    ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
  }

  std::function<std::string(const std::string&)> script_;
  const int max_requests_;
  int listener_ = -1, port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // of the acceptor alone until it has ended
  std::mutex mutex_;
  std::vector<std::string> heads_;
};

std::string chunked(const std::vector<std::string>& events, bool has_end = true) {
  std::string out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& event : events) {
    const std::string line = "data: " + event + "\n\n";
    out += fmt::format("{:x}\r\n{}\r\n", line.size(), line);
  }
  return has_end ? out + "0\r\n\r\n" : out;
}

const std::string kToken = R"({"choices":[{"delta":{"content":"a"}}]})";
const std::string kUsage = R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}})";

TEST(LoadClient, CountsWhatComesAndHowItEnds) {
  ScriptedServer server([](const std::string& body) -> std::string {
    if (body == "good") return chunked({kToken, kToken, kToken, kUsage, "[DONE]"});
    if (body == "full") return "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 11\r\n\r\nit is full\n";
    if (body == "no end") return chunked({kToken});
    if (body == "cut off") return chunked({kToken}, false) + std::string(kCut);
    if (body == "an error") return chunked({kToken, R"({"error":{"message":"no memory"}})", "[DONE]"});
    if (body == "no stream") return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    if (body == "no json") return chunked({"{"});
    return "";
  });
  const std::vector<std::string> bodies = {"good",     "full",      "no end",  "cut off",
                                           "an error", "no stream", "no json", "nothing"};
  LoadTestOptions options;
  options.n_clients = 1;
  options.timeout_s = 30;
  options.api_key = "secret";
  const LoadRun run = run_load(server.target(), bodies, {}, options);
  EXPECT_THAT(run.statuses, ElementsAre(200, 429, 200, 200, 200, 200, 200, 0));
  const auto& requests = run.run.requests;
  EXPECT_FALSE(requests[0].error.has_value());
  EXPECT_EQ(requests[0].n_answer_tokens, 3);
  EXPECT_EQ(requests[0].n_prompt_tokens, 5);
  EXPECT_EQ(requests[0].gaps_ms.size(), 2U);
  EXPECT_GT(requests[0].timings.first_token_ms, 0);
  EXPECT_GE(requests[0].timings.total_ms, requests[0].timings.first_token_ms);
  const char* problems[] = {"",          "429: it is full",  "no end",   "cut off",
                            "no memory", "stream of events", "an event", "no answer"};
  for (std::size_t i = 1; i < bodies.size(); ++i) {
    ASSERT_TRUE(requests[i].error.has_value()) << bodies[i];
    EXPECT_THAT(requests[i].error->message, HasSubstr(problems[i])) << bodies[i];
  }
  EXPECT_THAT(server.heads().front(), AllOf(HasSubstr("POST /v1/chat/completions HTTP/1.1\r\n"),
                                            HasSubstr("\r\nAuthorization: Bearer secret\r\n")));
  const LoadReport report{"http://x/<b>", "m & n", "1 client", 1, run};
  const LoadSummary summary = summarize(run);
  EXPECT_EQ(summary.served.n_answered, 1U);
  EXPECT_EQ(summary.statuses.at(429), 1U);
  EXPECT_EQ(summary.refusal_ms.n, 1U);
  EXPECT_EQ(summary.most_in_flight, 1U);
  EXPECT_THAT(load_text(report), AllOf(HasSubstr("none: 1, 200: 6, 429: 1"), HasSubstr("no memory")));
  const std::string html = load_html(report);
  expect_well_formed(html);
  EXPECT_THAT(html, AllOf(HasSubstr("http://x/&lt;b&gt;"), HasSubstr("Requests at once")));
}

// A closed loop keeps a connection a client, and takes a new one when the server has closed it meanwhile.
TEST(LoadClient, KeepsConnections) {
  const auto script = [](const std::string&) { return chunked({kToken, "[DONE]"}); };
  const std::vector<std::string> bodies(12, "x");
  LoadTestOptions options;
  options.n_clients = 3;
  {
    ScriptedServer server(script);
    const LoadRun run = run_load(server.target(), bodies, {}, options);
    EXPECT_EQ(summarize(run).served.n_answered, 12U);
    EXPECT_LE(summarize(run).most_in_flight, 3U);
    EXPECT_EQ(run.n_connects, 3U);
  }
  ScriptedServer server(script, 1);
  const LoadRun run = run_load(server.target(), bodies, {}, options);
  EXPECT_EQ(summarize(run).served.n_answered, 12U) << load_text({"u", "m", "l", 3, run});
  EXPECT_EQ(run.n_connects, 12U);
}

// Of an open loop nothing waits for another's answer: all four are asked before the first is answered.
TEST(LoadClient, AsksWhenItIsTime) {
  std::atomic<int> n_asked{0};
  ScriptedServer server([&](const std::string&) {
    ++n_asked;
    while (n_asked < 4) std::this_thread::yield();
    return chunked({kToken, "[DONE]"});
  });
  std::size_t n_done = 0;
  LoadTestOptions options;
  options.on_progress = [&](std::size_t n) { n_done = n; };
  const LoadRun run = run_load(server.target(), {"a", "b", "c", "d"}, {30, 0, 10, 20}, options);
  EXPECT_EQ(n_done, 4U);
  EXPECT_EQ(summarize(run).served.n_answered, 4U);
  EXPECT_EQ(summarize(run).most_in_flight, 4U);
  EXPECT_NEAR(run.run.requests[0].arrival_ms, 30, 1e-3);
  EXPECT_GE(run.run.wall_ms, 30);
}

TEST(LoadClient, GivesUpAfterItsTime) {
  std::atomic<bool> is_over{false};
  ScriptedServer server([&](const std::string&) -> std::string {
    while (!is_over) std::this_thread::yield();
    return "";
  });
  LoadTestOptions options;
  options.n_clients = 1;
  options.timeout_s = 0.05;
  const LoadRun run = run_load(server.target(), {"x"}, {}, options);
  is_over = true;
  EXPECT_THAT(run.run.requests[0].error.value_or(RequestError{}).message, HasSubstr("no answer"));
}

TEST(LoadClient, AsksForTheModel) {
  std::string body = R"({"data":[{"id":"m1"},{"id":"m2"}]})";
  ScriptedServer server([&](const std::string&) {
    return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  });
  EXPECT_EQ(first_served_model(server.target(), {}), "m1");
  body = R"({"data":[]})";
  EXPECT_THROW(first_served_model(server.target(), {}), Error);
  body = "<html>";
  EXPECT_THROW(first_served_model(server.target(), {}), Error);
}

TEST(LoadClient, ReadsUrls) {
  const auto parts = [](const char* url) {
    const LoadTarget t = parse_load_url(url);
    return fmt::format("{} {} {}", t.host, t.port, t.prefix);
  };
  EXPECT_EQ(parts("http://a"), "a 80 ");
  EXPECT_EQ(parts("http://a:8000/"), "a 8000 ");
  EXPECT_EQ(parts("http://a:8000/v1/"), "a 8000 ");
  EXPECT_EQ(parts("http://[::1]:9/x/v1"), "::1 9 /x");
  for (const char* bad :
       {"a:80", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a:x", "http://[::1",
        "http://u@a", "http://a/?q", "http://a b", "https://a", "http://a\r\nX: y"})
    EXPECT_THROW(parse_load_url(bad), Error) << bad;
}

TEST(LoadRequests, AreBodiesOfChats) {
  TraceRequest request;
  request.pictures = {{.width_px = 40, .height_px = 30, .group = 1},
                      {.width_px = 40, .height_px = 30, .group = 2}};
  request.prompt_tokens = 6;
  request.prefix_group = 1;
  request.prefix_tokens = 4;
  request.answer_tokens = 3;
  TraceRequest other = request;
  other.pictures.pop_back();
  const auto bodies =
      make_load_bodies({request, other}, {.model = "m", .fields = R"({"seed":7,"ignore_eos":null})"});
  const auto one = nlohmann::json::parse(bodies[0]), two = nlohmann::json::parse(bodies[1]);
  EXPECT_EQ(one["max_tokens"], 3);
  EXPECT_EQ(one["seed"], 7);
  EXPECT_FALSE(one.contains("ignore_eos"));
  const auto& content = one["messages"][0]["content"];
  ASSERT_EQ(content.size(), 3U);
  EXPECT_NE(content[0], content[1]);  // another group
  EXPECT_EQ(content[0], two["messages"][0]["content"][0]);
  const std::string a = content[2]["text"], b = two["messages"][0]["content"][1]["text"];
  EXPECT_EQ(std::count(a.begin(), a.end(), ' '), 5);
  const auto prefix_of = [](std::string text) {
    for (int i = 0; i < 2; ++i) text.resize(text.rfind(' '));
    return text;
  };
  EXPECT_EQ(prefix_of(a), prefix_of(b));
  EXPECT_THROW(make_load_bodies({request}, {.model = "m", .fields = "[1]"}), Error);
  request.pictures = {{.width_px = 0, .height_px = 0, .file = "absent.png"}};
  EXPECT_THROW(make_load_bodies({request}, {.model = "m"}), Error);
}

}  // namespace
}  // namespace triptych
