// Bytes of a client as they stand, over a real socket, to the server's side of HTTP: heads, bodies, chunks,
// pipelines. The first byte says where they are cut in two. What comes back is HTTP, whatever was sent.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "only_errors.h"
#include "server/http_server.h"

namespace {

using namespace triptych;
using namespace triptych::server;

class Echo final : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest& head) override {
    fuzz::require(!head.method.empty() && !head.target.empty(), "a request has a method and a target");
    if (head.path == "/refused") return HttpResponse{401, "text/plain", "no", {}};
    return std::nullopt;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    if (exchange->request().path != "/stream")
      return exchange->respond({200, "text/plain", exchange->take_body(), {}});
    exchange->start_stream({200, "text/event-stream", "", {}});
    exchange->send("data: 1\n\n");
    exchange->end_stream();
  }
  HttpResponse protocol_error(int status, std::string_view what) override {
    fuzz::require(status >= 400 && status <= 503 && reason_phrase(status) != "Unknown",
                  "an error has a status");
    return {status, "text/plain", std::string(what), {}};
  }
};

HttpServer& server_at(const std::string& path) {
  static Echo echo;
  static HttpServer* const server = [&] {
    HttpServerOptions options;
    options.uds = path;
    options.max_body_bytes = 4096;
    auto* const made = new HttpServer(options, echo);  // as long as the process
    made->start();
    return made;
  }();
  return *server;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::only_errors([&] {
    static const std::string path = "/tmp/triptych-fuzz-" + std::to_string(getpid()) + ".sock";
    server_at(path);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz::require(fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
                  "the server accepts");
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const std::size_t cut = size == 0 ? 0 : std::min<std::size_t>(size, data[0]);
    for (const std::string_view part : {bytes.substr(0, cut), bytes.substr(cut)})
      if (!part.empty()) static_cast<void>(::send(fd, part.data(), part.size(), MSG_NOSIGNAL));
    ::shutdown(fd, SHUT_WR);
    std::string out;
    char chunk[4096];
    for (ssize_t n = 0; (n = ::recv(fd, chunk, sizeof(chunk), 0)) > 0;)
      out.append(chunk, static_cast<std::size_t>(n));
    ::close(fd);
    fuzz::require(out.empty() || out.starts_with("HTTP/1.1 "), "an answer is HTTP");
  });
}
