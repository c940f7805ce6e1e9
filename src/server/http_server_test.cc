// The network alone: a handler that needs no model, and clients that behave badly.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace triptych::server {
namespace {

using std::chrono::milliseconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TestHandler : public HttpHandler {
 public:
  ~TestHandler() override {
    for (std::thread& thread : threads_) thread.join();
  }
  std::optional<HttpResponse> refuse(const HttpRequest& head) override {
    if (head.path != "/refused") return std::nullopt;
    return HttpResponse{401, "text/plain", "refused", {}};
  }
  HttpResponse protocol_error(int status, std::string_view what) override {
    return {status, "text/plain", std::string(what), {}};
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const std::string path = exchange->request().path;
    if (path == "/echo") {
      exchange->respond({200, "text/plain", exchange->take_body(), {}});
    } else if (path == "/stream") {
      exchange->start_stream({200, "text/plain", "", {}});
      for (const char* part : {"one,", "two,", "three"}) exchange->send(part);
      exchange->end_stream();
    } else if (path == "/flood") {
      exchange->on_disconnect([this] { ++n_disconnected; });
      exchange->start_stream({200, "text/plain", "", {}});
      threads_.emplace_back([exchange] {
        while (exchange->send(std::string(4096, 'x'))) {
        }
      });
    } else if (path == "/never") {
      exchange->on_disconnect([this] { ++n_disconnected; });
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(exchange));
    } else {
      exchange->respond({200, "text/plain", path, {}});
    }
  }
  std::atomic<int> n_disconnected{0};

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> kept_;
  std::vector<std::thread> threads_;
};

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) throw std::runtime_error("connect");
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void send(const std::string& bytes) {
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void end_sending() { shutdown(fd_, SHUT_WR); }
  /// Until the server closes, or `text` has come.
  std::string read(const std::string& text = "") {
    std::string out;
    char buffer[4096];
    while (text.empty() || out.find(text) == std::string::npos) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
  }

 private:
  int fd_;
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    options.port = 0;
    server_.emplace(options, handler_);
    server_->start();
    const std::string& endpoint = server_->endpoints().front();
    port_ = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  }
  std::string ask(const std::string& bytes) {
    Client client(port_);
    client.send(bytes);
    return client.read();
  }
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(5));
    return holds();
  }

  TestHandler handler_;
  std::optional<HttpServer> server_;
  int port_ = 0;
};

const std::string kClose = " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";

TEST_F(HttpServerTest, AnswersWholeAndInChunks) {
  start();
  EXPECT_THAT(ask("POST /echo" + kClose + "Content-Length: 5\r\n\r\nhello"), EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(
      ask("POST /echo" + kClose + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
      EndsWith("\r\n\r\nhello"));
  EXPECT_THAT(ask("GET /stream" + kClose + "\r\n"),
              EndsWith("4\r\none,\r\n4\r\ntwo,\r\n5\r\nthree\r\n0\r\n\r\n"));
  EXPECT_THAT(ask("GET /stream HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\none,two,three"));
  EXPECT_THAT(ask("HEAD /echo" + kClose + "\r\n"), EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  start();
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string replies = ask(requests + "GET /last" + kClose + "\r\n");
  std::size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = replies.find("\r\n\r\n/" + std::to_string(i) + "HTTP", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_THAT(replies, EndsWith("/last"));
}

TEST_F(HttpServerTest, RefusesBeforeTheBodyAndOverTheLimits) {
  HttpServerOptions options;
  options.max_head_bytes = 2000;
  options.max_body_bytes = 1000;
  start(options);
  EXPECT_THAT(ask("POST /refused" + kClose + "Content-Length: 900\r\n\r\n"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask("POST /echo" + kClose + "Content-Length: 1001\r\n\r\n"), HasSubstr("at most 1000 bytes"));
  EXPECT_THAT(
      ask("POST /echo" + kClose + "Transfer-Encoding: chunked\r\n\r\n800\r\n" + std::string(2048, 'x')),
      StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask("GET /" + std::string(3000, 'a') + kClose + "\r\n"), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("\x16\x03\x01\x02\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("POST /echo" + kClose + "Content-Length: -1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("POST /echo" + kClose + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET /x" + kClose + "\r\n"), EndsWith("/x"));
}

TEST_F(HttpServerTest, EndsWhatTakesTooLong) {
  HttpServerOptions options;
  options.head_timeout = milliseconds(200);
  options.body_timeout = milliseconds(200);
  options.idle_timeout = milliseconds(300);
  start(options);
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n"), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(ask("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
              StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(ask(""), "");
}

TEST_F(HttpServerTest, DropsAClientThatDoesNotRead) {
  HttpServerOptions options;
  options.max_unread_bytes = 100'000;
  start(options);
  Client client(port_);
  client.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(
      eventually([&] { return server_->counts().n_slow_readers == 1 && handler_.n_disconnected == 1; }));
  EXPECT_THAT(ask("GET /x" + kClose + "\r\n"), EndsWith("/x"));
  EXPECT_TRUE(eventually([&] { return server_->counts().n_connections == 0; }));
}

TEST_F(HttpServerTest, SeesThatAClientHasLeft) {
  start();
  {
    Client gone(port_);
    gone.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return server_->counts().n_accepted == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return handler_.n_disconnected == 1; }));
  Client half(port_);
  half.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  half.end_sending();
  EXPECT_TRUE(eventually([&] { return handler_.n_disconnected == 2; }));
}

TEST_F(HttpServerTest, TurnsAwayConnectionsOverTheLimit) {
  HttpServerOptions options;
  options.max_connections = 2;
  start(options);
  Client first(port_), second(port_);
  for (Client* client : {&first, &second}) {
    client->send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(client->read("/x"), EndsWith("/x"));
  }
  EXPECT_THAT(Client(port_).read(), StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(server_->counts().n_refused, 1u);
}

TEST_F(HttpServerTest, SaysWhichAddressIsTaken) {
  start();
  HttpServerOptions same;
  same.port = port_;
  try {
    const HttpServer other(same, handler_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(port_)));
  }
}

TEST_F(HttpServerTest, DrainsWithoutLosingARequest) {
  start();
  Client idle(port_), late(port_);
  idle.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(idle.read("/x"), EndsWith("/x"));
  std::thread drain([&] { server_->drain(milliseconds(5000)); });
  std::this_thread::sleep_for(milliseconds(100));
  late.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(late.read(), EndsWith("Connection: close\r\n\r\n/late"));
  EXPECT_EQ(idle.read(), "");
  drain.join();
  EXPECT_EQ(server_->counts().n_connections, 0u);
}

}  // namespace
}  // namespace triptych::server
