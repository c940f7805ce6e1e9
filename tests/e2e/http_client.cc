#include "e2e/http_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "e2e/program.h"

namespace triptych::test {
namespace {

using Clock = std::chrono::steady_clock;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool wait_readable(int fd, Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  pollfd one{fd, POLLIN, 0};
  return left > 0 && poll(&one, 1, static_cast<int>(left)) > 0;
}

std::string base64(const std::string& bytes) {
  static const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

}  // namespace

std::string data_url_of(const std::string& path, const std::string& type) {
  return "data:" + type + ";base64," + base64(read_file(path));
}

std::string HttpReply::header(const std::string& name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return "";
}

std::vector<nlohmann::json> HttpReply::events() const {
  std::vector<nlohmann::json> out;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("data: ", 0) == 0 && line != "data: [DONE]")
      out.push_back(nlohmann::json::parse(line.substr(6)));
  return out;
}

HttpConnection::HttpConnection(int port) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
}

HttpConnection::HttpConnection(const std::string& unix_path) {
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::strncpy(to.sun_path, unix_path.c_str(), sizeof to.sun_path - 1);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
}

HttpConnection::~HttpConnection() { close(); }

void HttpConnection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void HttpConnection::send(const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has had enough: its answer says why
    at += static_cast<std::size_t>(n);
  }
}

bool HttpConnection::read_some(Clock::time_point end) {
  char buffer[1 << 16];
  if (!wait_readable(fd_, end)) return false;
  const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  in_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

bool HttpConnection::read_until(const std::string& text, std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  while (in_.find(text) == std::string::npos)
    if (!read_some(end)) return false;
  return true;
}

bool HttpConnection::is_closed(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    char buffer[4096];
    if (!wait_readable(fd_, end)) return false;
    if (recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
  }
  return false;
}

HttpReply HttpConnection::read_reply(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  HttpReply out;
  if (!read_until("\r\n\r\n", limit)) return out;
  std::size_t at = in_.find("\r\n\r\n");
  std::istringstream head(in_.substr(0, at));
  in_.erase(0, at + 4);
  std::string line;
  std::getline(head, line);
  if (line.rfind("HTTP/1.1 ", 0) != 0) throw std::runtime_error("no status line: " + line);
  out.status = std::stoi(line.substr(9, 3));
  while (std::getline(head, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos)
      out.headers.emplace_back(lower(line.substr(0, colon)), line.substr(colon + 2));
  }
  if (out.status == 100) return read_reply(limit);
  out.was_chunked = out.header("transfer-encoding") == "chunked";
  if (!out.was_chunked) {
    const std::string length = out.header("content-length");
    const std::size_t n = length.empty() ? 0 : std::stoul(length);
    while (in_.size() < n)
      if (!read_some(end)) throw std::runtime_error("the body is cut short");
    out.body = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }
  for (;;) {
    while ((at = in_.find("\r\n")) == std::string::npos)
      if (!read_some(end)) throw std::runtime_error("the chunks are cut short");
    const std::size_t n = std::stoul(in_.substr(0, at), nullptr, 16);
    while (in_.size() < at + 2 + n + 2)
      if (!read_some(end)) throw std::runtime_error("a chunk is cut short");
    out.body += in_.substr(at + 2, n);
    in_.erase(0, at + 2 + n + 2);
    if (n == 0) return out;
  }
}

std::string http_request(const std::string& method, const std::string& path, const std::string& body,
                         const std::string& headers) {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
}

ServerProcess::ServerProcess(const std::vector<std::string>& args, const std::string& model) {
  std::vector<std::string> all = {program_path(), "serve", model.empty() ? kModel.string() : model, "--json"};
  all.insert(all.end(), {"--port", "0"});
  all.insert(all.end(), args.begin(), args.end());
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], 1);
    std::vector<char*> raw;
    for (std::string& one : all) raw.push_back(one.data());
    raw.push_back(nullptr);
    execvp(raw[0], raw.data());
    _exit(127);
  }
  ::close(out[1]);
  std::string line;
  const auto end = Clock::now() + std::chrono::seconds(120);
  char c = 0;
  while (wait_readable(out[0], end) && read(out[0], &c, 1) == 1 && c != '\n') line += c;
  ::close(out[0]);
  if (line.empty()) throw std::runtime_error("the server did not start");
  endpoint_ = nlohmann::json::parse(line)["endpoints"][0];
  if (const std::size_t colon = endpoint_.rfind(':'); endpoint_.rfind("http", 0) == 0)
    port_ = std::stoi(endpoint_.substr(colon + 1));
}

ServerProcess::~ServerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ServerProcess::terminate() { kill(pid_, SIGTERM); }

int ServerProcess::exit_code(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

HttpReply ServerProcess::ask(const std::string& request) const {
  HttpConnection connection(port_);
  connection.send(request);
  return connection.read_reply();
}
HttpReply ServerProcess::get(const std::string& path) const { return ask(http_request("GET", path)); }
HttpReply ServerProcess::post(const std::string& path, const nlohmann::json& body) const {
  return ask(http_request("POST", path, body.dump()));
}

double ServerProcess::metric(const std::string& name) const {
  std::istringstream lines(get("/metrics").body);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + " ", 0) == 0) return std::stod(line.substr(name.size() + 1));
  throw std::runtime_error("no metric " + name);
}

}  // namespace triptych::test
