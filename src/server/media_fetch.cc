#include "server/media_fetch.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "server/api_error.h"
#include "server/fetch_url.h"

namespace triptych::server {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};
constexpr std::uint32_t kMaxHead_bytes = 32 << 10;
constexpr std::size_t kBuffer_bytes = 64 << 10;
constexpr int kMaxLookups = 32;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Writing to a connection that has broken must not end the process. OpenSSL writes without MSG_NOSIGNAL.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    const timespec at_once{};
    while (sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

}  // namespace

// One fetch: its limits, and the field that it is for.
struct MediaFetcher::Job {
  const MediaFetcher& fetcher;
  const FetchRules& rules;
  const std::string& param;
  Budget& budget;

  [[noreturn]] void refuse(const std::string& what, int status = 400,
                           std::string_view code = "invalid_image_url") const {
    throw ApiError(status, code, what, param);
  }
  // One answer for a host that is not allowed and an address that is not: nobody can look around with it.
  [[noreturn]] void refuse_place() const { refuse(kPlaceNotAllowed, 400, "url_not_allowed"); }
  /// Counts bytes that are kept from here on.
  void take(std::uint64_t n) const {
    budget.n_bytes_ += n;
    if (fetcher.n_held_bytes_.fetch_add(n) + n > rules.max_all_bytes)
      throw ApiError(503, "overloaded", "too many bytes of pictures are being fetched", param);
    if (budget.n_bytes_ > rules.max_bytes) too_large();
  }
  [[noreturn]] void too_large() const {
    refuse(fmt::format("the pictures that a request names may have {} bytes", rules.max_bytes), 413,
           "image_too_large");
  }
  /// Throws when the time is over or nobody waits.
  void check() const {
    if (budget.is_cancelled_ && budget.is_cancelled_())
      throw ApiError(499, "cancelled", "the client has left");
    if (Clock::now() >= budget.end_) refuse("the picture could not be fetched in time");
  }
};

namespace {

// The system's resolver cannot be stopped: it gets a thread that may outlive who asked.
template <typename Job>
std::vector<IpAddress> addresses_of(const Job& job, const std::string& host) {
  static std::atomic<int> n_lookups{0};
  if (n_lookups.fetch_add(1) >= kMaxLookups) {
    --n_lookups;
    throw ApiError(503, "overloaded", "too many hosts are being looked up", job.param);
  }
  auto promise = std::make_shared<std::promise<std::vector<IpAddress>>>();
  std::future<std::vector<IpAddress>> found = promise->get_future();
  std::thread([promise, host, resolve = job.rules.resolve] {
    try {
      promise->set_value(resolve(host));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
    --n_lookups;
  }).detach();
  while (found.wait_for(kSlice) != std::future_status::ready) job.check();
  return found.get();
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const noexcept { return fd_; }

  /// Waits until it can be read or written. Throws as Job::check.
  template <typename Job>
  void wait(const Job& job, short events) const {
    for (;;) {
      job.check();
      pollfd one{fd_, events, 0};
      if (::poll(&one, 1, static_cast<int>(kSlice.count())) > 0) return;
    }
  }

 private:
  int fd_;
};

// -1: at once refused.
int connect_to(const IpAddress& address, std::uint16_t port) {
  const int fd = ::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int result = 0;
  if (address.is_v6) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    std::memcpy(&to.sin6_addr, address.bytes.data(), 16);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  } else {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, address.bytes.data(), 4);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  if (result != 0 && errno != EINPROGRESS) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// The first address that answers; all were looked at.
template <typename Job>
std::unique_ptr<Socket> connect_any(const Job& job, const std::vector<IpAddress>& addresses,
                                    std::uint16_t port) {
  for (const IpAddress& address : addresses) {
    auto socket = std::make_unique<Socket>(connect_to(address, port));
    if (socket->get() < 0) continue;
    socket->wait(job, POLLOUT);
    int failure = 0;
    socklen_t size = sizeof failure;
    if (::getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0)
      return socket;
  }
  job.refuse("the picture could not be fetched: its host does not answer");
}

}  // namespace

// Bytes to and from a host, with TLS or without.
class MediaFetcher::Stream {
 public:
  Stream(const Job& job, std::unique_ptr<Socket> socket) : job_(job), socket_(std::move(socket)) {}

  /// The certificate has to be of the host, and from someone who is trusted.
  void begin_tls(SSL_CTX* context, const FetchUrl& url) {
    ssl_.reset(SSL_new(context));
    if (!ssl_ || SSL_set_fd(ssl_.get(), socket_->get()) != 1)
      job_.refuse("the picture could not be fetched: no memory for TLS");
    X509_VERIFY_PARAM* param = SSL_get0_param(ssl_.get());
    const std::optional<IpAddress> address = address_in(url);
    if (address) {
      X509_VERIFY_PARAM_set1_ip(param, address->bytes.data(), address->is_v6 ? 16 : 4);
    } else {
      SSL_set_tlsext_host_name(ssl_.get(), url.host.c_str());
      X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      X509_VERIFY_PARAM_set1_host(param, url.host.c_str(), 0);
    }
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
    for (;;) {
      const int result = SSL_connect(ssl_.get());
      if (result == 1) return;
      if (!wait_for_tls(result))
        job_.refuse("the picture could not be fetched: its host's TLS is not trusted");
    }
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      long n = 0;
      if (ssl_) {
        n = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
        if (n <= 0 && wait_for_tls(static_cast<int>(n))) continue;
      } else {
        n = ::send(socket_->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
          socket_->wait(job_, POLLOUT);
          continue;
        }
      }
      if (n <= 0) broken();
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  /// 0 at the end.
  std::size_t read(char* into, std::size_t n_max) {
    for (;;) {
      if (ssl_) {
        const int n = SSL_read(ssl_.get(), into, static_cast<int>(n_max));
        if (n > 0) return static_cast<std::size_t>(n);
        if (SSL_get_error(ssl_.get(), n) == SSL_ERROR_ZERO_RETURN) return 0;
        if (!wait_for_tls(n)) broken();
      } else {
        const ssize_t n = ::recv(socket_->get(), into, n_max, 0);
        if (n >= 0) return static_cast<std::size_t>(n);
        if (errno != EAGAIN && errno != EINTR) broken();
        socket_->wait(job_, POLLIN);
      }
      job_.check();
    }
  }

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  };
  static std::optional<IpAddress> address_in(const FetchUrl& url) {
    try {
      return parse_ip_address(url.host);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  [[noreturn]] void broken() const { job_.refuse("the picture could not be fetched: the connection broke"); }
  bool wait_for_tls(int result) {
    const int why = SSL_get_error(ssl_.get(), result);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return false;
    socket_->wait(job_, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
    return true;
  }

  const Job& job_;
  std::unique_ptr<Socket> socket_;
  std::unique_ptr<SSL, FreeSsl> ssl_;  // null: without; freed before the socket
};

struct MediaFetcher::Answer {
  int status = 0;
  std::string location, body;
};

// Only an answer of 200 has its body read.
MediaFetcher::Answer MediaFetcher::read_answer(const Job& job, Stream& stream) {
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHead_bytes);
  parser.body_limit(job.rules.max_bytes);
  parser.eager(false);
  const auto fail_for = [&](const boost::system::error_code& error) {
    if (error == http::error::body_limit) job.too_large();
    job.refuse("the picture could not be fetched: its host's answer is no HTTP");
  };
  std::string in;
  std::vector<char> buffer(kBuffer_bytes);
  boost::system::error_code error;
  for (;;) {
    while (!in.empty() && !parser.is_done()) {
      const std::size_t n = parser.put(boost::asio::buffer(in), error);
      in.erase(0, n);
      if (error == http::error::need_more) break;
      if (error) fail_for(error);
      if (parser.is_header_done() && parser.get().result_int() != 200) break;
      if (n == 0) break;
    }
    if (parser.is_header_done()) {
      const auto& head = parser.get();
      if (head.result_int() != 200) break;
      const auto coding = head[http::field::content_encoding];
      if (!coding.empty() && coding != "identity")
        job.refuse("the picture could not be fetched: its host sends it compressed");
      if (parser.is_done()) break;
    }
    const std::size_t n = stream.read(buffer.data(), buffer.size());
    if (n == 0) {
      parser.put_eof(error);
      if (error) job.refuse("the picture could not be fetched: its host's answer is cut short");
      break;
    }
    job.take(n);
    in.append(buffer.data(), n);
  }
  Answer out;
  out.status = static_cast<int>(parser.get().result_int());
  out.location = std::string(parser.get()[http::field::location]);
  out.body = std::move(parser.get().body());
  return out;
}

struct MediaFetcher::Tls {
  Tls() : context(SSL_CTX_new(TLS_client_method())) {}
  ~Tls() { SSL_CTX_free(context); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  SSL_CTX* context;
};

MediaFetcher::MediaFetcher(FetchRules rules) : rules_(std::move(rules)) {
  if (!enabled()) return;
  for (const std::string& domain : rules_.domains) check_media_domain(domain);
  tls_ = std::make_unique<Tls>();
  if (tls_->context == nullptr) fail(ErrorCode::kOutOfMemory, "no memory for TLS");
  SSL_CTX_set_min_proto_version(tls_->context, TLS1_2_VERSION);
  // Partial writes: what was sent is not sent again.
  SSL_CTX_set_mode(tls_->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (rules_.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(tls_->context);
  } else if (SSL_CTX_load_verify_locations(tls_->context, rules_.ca_file.c_str(), nullptr) != 1) {
    fail(ErrorCode::kInvalidArgument, "{}: expected certificates (PEM)", rules_.ca_file);
  }
}
MediaFetcher::~MediaFetcher() = default;

MediaFetcher::Budget::Budget(const MediaFetcher& fetcher, std::function<bool()> is_cancelled)
    : fetcher_(fetcher),
      is_cancelled_(std::move(is_cancelled)),
      end_(Clock::now() + fetcher.rules_.timeout) {}
MediaFetcher::Budget::~Budget() { fetcher_.n_held_bytes_ -= n_bytes_; }

std::string MediaFetcher::fetch(std::string_view text, const std::string& param, Budget& budget) const {
  const NoBrokenPipe no_broken_pipe;
  const Job job{*this, rules_, param, budget};
  const auto read_url = [&](auto parse) {
    try {
      return parse();
    } catch (const Error& error) {
      job.refuse(error.what());
    }
  };
  FetchUrl url = read_url([&] { return parse_fetch_url(text); });
  for (int hop = 0;; ++hop) {
    if (!matches_media_domains(rules_.domains, url)) job.refuse_place();
    const std::vector<IpAddress> addresses = addresses_of(job, url.host);
    if (addresses.empty()) job.refuse("the picture could not be fetched: its host is not known");
    // A name with one address inside is none to trust.
    if (!std::all_of(addresses.begin(), addresses.end(), rules_.is_allowed)) job.refuse_place();
    Stream stream(job, connect_any(job, addresses, url.port));
    if (url.is_tls) stream.begin_tls(tls_->context, url);
    stream.write(fmt::format(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: triptych/{}\r\nAccept: image/*\r\nAccept-Encoding: "
        "identity\r\nConnection: close\r\n\r\n",
        url.target, url.authority(), build_info().version));
    Answer answer = read_answer(job, stream);
    if (answer.status == 200) return std::move(answer.body);
    if (!is_redirect(answer.status))
      job.refuse(fmt::format("the picture could not be fetched: its host answers {}", answer.status));
    if (hop >= rules_.max_redirects)
      job.refuse(
          fmt::format("the picture could not be fetched: more than {} redirects", rules_.max_redirects));
    url = read_url([&] { return follow_location(url, answer.location); });
  }
}

}  // namespace triptych::server
