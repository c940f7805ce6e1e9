// A server as users start it, and a client that shows every byte.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace triptych::test {

struct HttpReply {
  int status = 0;                                            // 0: the connection ended before an answer
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // chunks joined
  bool was_chunked = false;

  std::string header(const std::string& name) const;
  nlohmann::json json() const { return nlohmann::json::parse(body); }
  /// The texts behind "data: ", without the last, [DONE].
  std::vector<nlohmann::json> events() const;
};

/// One connection to 127.0.0.1, or to a Unix socket.
class HttpConnection {
 public:
  explicit HttpConnection(int port);
  explicit HttpConnection(const std::string& unix_path);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void send(const std::string& bytes);
  /// Reads one whole answer.
  HttpReply read_reply(std::chrono::seconds limit = std::chrono::seconds(120));
  /// Reads until `text` has come; false at the end of the connection.
  bool read_until(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(120));
  /// Whether the server has closed it, within the limit.
  bool is_closed(std::chrono::seconds limit = std::chrono::seconds(30));
  void close();

 private:
  bool read_some(std::chrono::steady_clock::time_point end);
  int fd_ = -1;
  std::string in_;
};

std::string http_request(const std::string& method, const std::string& path, const std::string& body = "",
                         const std::string& headers = "Content-Type: application/json\r\n");

/// `triptych serve` with the model that ships, at a free port unless `args` say otherwise.
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& args = {}, const std::string& model = "");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int port() const noexcept { return port_; }
  const std::string& endpoint() const noexcept { return endpoint_; }
  int pid() const noexcept { return pid_; }
  /// One request on a connection of its own.
  HttpReply get(const std::string& path) const;
  HttpReply post(const std::string& path, const nlohmann::json& body) const;
  HttpReply ask(const std::string& request) const;
  void terminate();
  /// Waits for its end; -1 after the limit.
  int exit_code(std::chrono::seconds limit = std::chrono::seconds(60));
  /// A number of /metrics.
  double metric(const std::string& name) const;

 private:
  int pid_ = -1;
  int port_ = 0;
  std::string endpoint_;
};

/// "data:image/png;base64,..." of a file.
std::string data_url_of(const std::string& path, const std::string& type = "image/png");

}  // namespace triptych::test
