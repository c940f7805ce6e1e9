// What a client may not make the server open: listeners on this machine see no connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || listen(fd_, 16) != 0)
      throw std::runtime_error("listen");
    socklen_t size = sizeof at;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  bool was_asked() const {
    pollfd one{fd_, POLLIN, 0};
    return poll(&one, 1, 0) > 0;
  }

 private:
  int fd_;
  int port_ = 0;
};

HttpReply ask_about(const ServerProcess& server, const std::string& url) {
  return server.post("/v1/chat/completions", {{"messages",
                                               {{{"role", "user"},
                                                 {"content",
                                                  {{{"type", "image_url"}, {"image_url", {{"url", url}}}},
                                                   {{"type", "text"}, {"text", "What is this?"}}}}}}},
                                              {"max_tokens", 2}});
}

void expect_refused(const ServerProcess& server, const std::string& url) {
  const HttpReply reply = ask_about(server, url);
  ASSERT_EQ(reply.status, 400) << url << ": " << reply.body;
  EXPECT_EQ(reply.json()["error"]["param"], "messages[0].content[0].image_url.url") << url;
}

TEST(ServeMedia, AsksNoAddressInside) {
  const Listener listener;
  const std::string port = ":" + std::to_string(listener.port());
  const ServerProcess closed;
  const ServerProcess open({"--allowed-media-domains", "*" + port, "--allowed-media-domains", "*"});
  for (const ServerProcess* server : {&closed, &open}) {
    for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "2130706433", "0x7f.1", "[::1]", "127.1",
                             "[::ffff:127.0.0.1]", "[::]", "user@127.0.0.1", "localhost."})
      for (const char* scheme : {"http://", "https://", "HTTP://"})
        expect_refused(*server, scheme + std::string(host) + port + "/x.png");
    for (const char* url :
         {"http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://[fe80::1]/",
          "file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd", "../x.png", "ftp://a/x.png",
          "gopher://a", "javascript:alert(1)", "http://", "https:x", ""})
      expect_refused(*server, url);
    EXPECT_EQ(ask_about(*server, data_url_of(kSource / "assets/eval/scenes/0000.png")).status, 200);
  }
  EXPECT_FALSE(listener.was_asked());
}

TEST(ServeMedia, SaysWhatADomainIs) {
  const RunResult result =
      triptych({"serve", kModel.string(), "--allowed-media-domains", "http://example.com"});
  expect_bad_input(result, "--allowed-media-domains");
}

}  // namespace
}  // namespace triptych::test
