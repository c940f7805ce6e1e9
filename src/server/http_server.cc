// The only file that sees Boost: its headers are dear to compile.
#include "server/http_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_set>

// Boost 1.74 asks clang for <experimental/coroutine>, which libstdc++ has not; the standard's own header
// does.
#if defined(__clang__) && !defined(BOOST_ASIO_HAS_CO_AWAIT)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#endif
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/error.h"
#include "base/log.h"

namespace triptych::server {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Tcp = net::ip::tcp;
using Local = net::local::stream_protocol;
using Task = net::awaitable<void>;

constexpr auto kNever = Clock::time_point::max();
constexpr std::size_t kIdleBuffer_bytes = 4 << 10;
constexpr std::size_t kBodyBuffer_bytes = 64 << 10;
constexpr std::size_t kMaxPipelined_bytes = 64 << 10;
constexpr const char* kLargeHead = "the head of the request is too large";
constexpr const char* kBusy = "too many bytes of requests are being read";
constexpr std::chrono::milliseconds kLinger{2000};
constexpr std::chrono::milliseconds kTick{100};

// Bytes to and from a client, over whatever carries them.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual Task handshake(error_code& error) = 0;
  virtual net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) = 0;
  virtual Task write(std::string_view bytes, error_code& error) = 0;
  virtual Task end_writing(error_code& error) = 0;
  virtual void close() noexcept = 0;
};

template <typename Socket>
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}
  Task handshake(error_code&) override { co_return; }
  net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) override {
    co_return co_await socket_.async_read_some(into, net::redirect_error(net::use_awaitable, error));
  }
  Task write(std::string_view bytes, error_code& error) override {
    co_await net::async_write(socket_, net::buffer(bytes), net::redirect_error(net::use_awaitable, error));
  }
  Task end_writing(error_code& error) override {
    socket_.shutdown(Socket::shutdown_send, error);
    co_return;
  }
  void close() noexcept override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(Tcp::socket socket, net::ssl::context& context) : stream_(std::move(socket), context) {}
  Task handshake(error_code& error) override {
    co_await stream_.async_handshake(net::ssl::stream_base::server,
                                     net::redirect_error(net::use_awaitable, error));
  }
  net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) override {
    co_return co_await stream_.async_read_some(into, net::redirect_error(net::use_awaitable, error));
  }
  Task write(std::string_view bytes, error_code& error) override {
    co_await net::async_write(stream_, net::buffer(bytes), net::redirect_error(net::use_awaitable, error));
  }
  Task end_writing(error_code& error) override {
    // The client's own end is not waited for: a read may be under way, and the session is over either way.
    SSL_set_quiet_shutdown(stream_.native_handle(), 0);
    SSL_set_shutdown(stream_.native_handle(), SSL_RECEIVED_SHUTDOWN);
    co_await stream_.async_shutdown(net::redirect_error(net::use_awaitable, error));
    error_code ignored;
    stream_.lowest_layer().shutdown(Tcp::socket::shutdown_send, ignored);
  }
  void close() noexcept override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  net::ssl::stream<Tcp::socket> stream_;
};

// A condition that coroutines of one thread wait for. Whoever waits has looked at what it waits for since the
// last suspension, so that no notice is lost.
class Notice {
 public:
  explicit Notice(net::io_context& io) : timer_(io, kNever) {}
  Task wait() {
    error_code ignored;
    co_await timer_.async_wait(net::redirect_error(net::use_awaitable, ignored));
  }
  void notify() { timer_.cancel(); }

 private:
  net::steady_timer timer_;
};

class Connection;

// Shared by all connections; but for the atomic counts used on the network thread only.
struct Shared {
  Shared(const HttpServerOptions& o, HttpHandler& h) : options(o), handler(h) {}
  const HttpServerOptions options;
  HttpHandler& handler;
  net::io_context io{1};
  std::unordered_set<Connection*> connections;
  std::size_t bodies_bytes = 0;
  bool draining = false;
  std::atomic<std::size_t> n_connections{0}, n_accepted{0}, n_refused{0}, n_slow_readers{0};
};

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7); always in English.
std::string http_date() {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<std::size_t>(t.tm_wday)],
                     t.tm_mday, kMonths[static_cast<std::size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour,
                     t.tm_min, t.tm_sec);
}

std::string head_text(const HttpResponse& response, bool keep_alive, std::string_view framing) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", response.status,
                                reason_phrase(response.status), http_date());
  if (!response.content_type.empty()) out += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  out += framing;
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

// What goes from those who answer to the connection. Locked: the former are any thread.
class Outbox : public Exchange, public std::enable_shared_from_this<Outbox> {
 public:
  Outbox(Shared& shared, std::weak_ptr<Connection> connection, HttpRequest request, bool keep_alive,
         bool is_http_1_0)
      : shared_(shared),
        connection_(std::move(connection)),
        request_(std::move(request)),
        keep_alive_(keep_alive),
        is_http_1_0_(is_http_1_0) {}

  const HttpRequest& request() const noexcept override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(HttpResponse response) override {
    const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
    std::string text = head_text(response, keep_alive_, framing);
    if (request_.method != "HEAD") text += response.body;
    put(text, true, false);
  }
  void start_stream(const HttpResponse& head) override {
    if (is_http_1_0_) keep_alive_ = false;  // the end of the connection is the end of the answer
    put(head_text(head, keep_alive_, is_http_1_0_ ? "" : "Transfer-Encoding: chunked\r\n"), false, false);
  }
  bool send(std::string_view bytes) override {
    if (bytes.empty() || request_.method == "HEAD") return is_open();
    if (is_http_1_0_) return put(bytes, false, true);
    return put(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes), false, true);
  }
  void end_stream() override {
    put(is_http_1_0_ || request_.method == "HEAD" ? "" : "0\r\n\r\n", true, false);
  }
  bool is_open() const noexcept override { return !gone_.load(std::memory_order_acquire); }
  void on_disconnect(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (!gone_) {
        on_disconnect_ = std::move(callback);
        return;
      }
    }
    callback();
  }

  // What follows is the connection's side.
  std::string take(bool& ended) {
    const std::lock_guard lock(mutex_);
    noticed_ = false;
    ended = ended_;
    return std::exchange(pending_, {});
  }
  void disconnect() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      gone_.store(true, std::memory_order_release);
      if (ended_) return;
      callback = std::exchange(on_disconnect_, nullptr);  // once
    }
    if (callback) callback();
  }
  bool keep_alive() const noexcept { return keep_alive_; }

 private:
  bool put(std::string_view bytes, bool is_end, bool is_limited);
  void notice();

  Shared& shared_;
  std::weak_ptr<Connection> connection_;
  HttpRequest request_;
  bool keep_alive_;
  const bool is_http_1_0_;
  std::atomic<bool> gone_{false};
  std::mutex mutex_;
  std::string pending_;
  bool ended_ = false, noticed_ = false;
  std::function<void()> on_disconnect_;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, std::unique_ptr<Transport> transport)
      : shared_(shared),
        transport_(std::move(transport)),
        in_notice_(shared.io),
        room_notice_(shared.io),
        out_notice_(shared.io) {
    shared_.connections.insert(this);
    ++shared_.n_connections;
  }
  ~Connection() {
    shared_.connections.erase(this);
    --shared_.n_connections;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    auto self = shared_from_this();
    deadline_ = Clock::now() + shared_.options.head_timeout;
    net::co_spawn(
        shared_.io, [self] { return self->serve(); }, net::detached);
  }
  void wake_writer() { out_notice_.notify(); }
  void drop() {
    transport_->close();
    in_notice_.notify();
    out_notice_.notify();
    room_notice_.notify();
  }
  void tick(Clock::time_point now) {
    if (now < deadline_) return;
    deadline_ = kNever;
    if (reads_request_) {  // which can still be answered
      timed_out_ = true;
      in_notice_.notify();
    } else {
      drop();
    }
  }
  /// Between two requests, with nothing read of the next.
  bool is_idle() const noexcept { return is_idle_; }

 private:
  using Parser = http::request_parser<http::string_body>;

  Task serve() {
    const auto self = shared_from_this();
    error_code error;
    co_await transport_->handshake(error);
    if (error) {
      drop();
      co_return;
    }
    net::co_spawn(
        shared_.io, [self] { return self->read_all(); }, net::detached);
    try {
      while (co_await serve_one()) {
      }
    } catch (const std::exception& failure) {  // no memory, as a rule
      log_warning("a connection: {}", failure.what());
      drop();
      co_return;
    }
    if (!in_closed_) {  // so that what was sent arrives although more of the request was under way
      discard_ = true;
      in_.clear();
      room_notice_.notify();
      deadline_ = Clock::now() + kLinger;
      co_await transport_->end_writing(error);
      while (!in_closed_) co_await in_notice_.wait();
    }
    drop();
  }

  // Reads as long as the client sends, also while it is answered: that is how its leaving is seen.
  Task read_all() {
    const auto self = shared_from_this();
    std::vector<char> large;
    error_code error;
    for (;;) {
      while (!discard_ && !in_closed_ && !takes_body_ && in_.size() >= kMaxPipelined_bytes)
        co_await room_notice_.wait();
      std::size_t n = 0;
      if (takes_body_) {
        large.resize(kBodyBuffer_bytes);
        n = co_await transport_->read_some(net::buffer(large), error);
        if (!error && !discard_) in_.append(large.data(), n);
      } else {
        if (!large.empty()) std::vector<char>().swap(large);
        n = co_await transport_->read_some(net::buffer(small_), error);
        if (!error && !discard_) in_.append(small_.data(), n);
      }
      if (error) break;
      in_notice_.notify();
      while (takes_body_ && !discard_ && in_.size() >= 4 * kBodyBuffer_bytes) co_await room_notice_.wait();
    }
    in_closed_ = true;
    in_notice_.notify();
    out_notice_.notify();
    if (current_) current_->disconnect();
  }

  // Waits for more of a request; false when none will come.
  net::awaitable<bool> more() {
    room_notice_.notify();
    if (in_closed_) co_return false;
    const std::size_t before = in_.size();
    while (in_.size() == before && !in_closed_ && !timed_out_) co_await in_notice_.wait();
    if (timed_out_) {
      reads_request_ = false;
      const std::string late = "the request did not come in time";
      co_await answer_error(408, late);
      co_return false;
    }
    co_return in_.size() > before;
  }

  // Parses what has come and drops it from `in_`. `wants_more`: nothing can be said yet.
  void parse(Parser& parser, error_code& error, bool& wants_more) {
    error = {};
    wants_more = false;
    const std::size_t n = parser.put(net::buffer(in_), error);
    in_.erase(0, n);
    if (error == http::error::need_more) {
      error = {};
      wants_more = true;
    }
  }

  // Callers keep what they pass in variables: GCC 12 destroys temporaries of an expression with co_await
  // twice.
  Task answer_error(int status, const std::string& what) {
    const HttpResponse response = shared_.handler.protocol_error(status, what);
    co_await write_plain(response);
  }
  Task write_plain(const HttpResponse& response) {
    error_code error;
    reads_request_ = false;
    deadline_ = Clock::now() + shared_.options.write_timeout;
    const std::string text =
        head_text(response, false, fmt::format("Content-Length: {}\r\n", response.body.size())) +
        response.body;
    co_await transport_->write(text, error);
  }

  // One request and its answer; false when the connection ends.
  net::awaitable<bool> serve_one() {
    is_idle_ = true;
    deadline_ = Clock::now() + shared_.options.idle_timeout;
    while (in_.empty())
      if (!co_await more()) co_return false;
    is_idle_ = false;
    reads_request_ = true;
    const auto parser = std::make_unique<Parser>();
    parser->header_limit(static_cast<std::uint32_t>(shared_.options.max_head_bytes));
    parser->body_limit(shared_.options.max_body_bytes);
    parser->eager(false);
    if (!co_await read_head(*parser)) co_return false;
    HttpRequest request = head_of(*parser);
    const bool is_http_1_0 = parser->get().version() < 11;
    const bool keep_alive = parser->keep_alive() && !shared_.draining;
    if (!co_await read_body(*parser, request)) co_return false;
    reads_request_ = false;
    if (!is_http_1_0 && request.header("host").empty()) {  // RFC 9112, 3.2
      shared_.bodies_bytes -= request.body.size();
      const std::string no_host = "the request has no Host";
      co_await answer_error(400, no_host);
      co_return false;
    }
    const std::size_t n_body = request.body.size();
    current_ =
        std::make_shared<Outbox>(shared_, weak_from_this(), std::move(request), keep_alive, is_http_1_0);
    deadline_ = kNever;
    if (in_closed_) current_->disconnect();
    shared_.handler.handle(current_);
    const bool is_whole = co_await write_answer();
    shared_.bodies_bytes -= n_body;
    const bool goes_on = is_whole && current_->keep_alive() && !shared_.draining;
    current_ = nullptr;
    co_return goes_on;
  }

  std::string large_body() const {
    return fmt::format("the body is too large: at most {} bytes are taken", shared_.options.max_body_bytes);
  }

  net::awaitable<bool> read_head(Parser& parser) {
    deadline_ = Clock::now() + shared_.options.head_timeout;
    for (;;) {
      error_code error;
      bool wants_more = false;
      parse(parser, error, wants_more);
      if (error) {
        const bool is_large = error == http::error::header_limit;
        const bool has_large_body = error == http::error::body_limit;
        const int status = is_large ? 431 : has_large_body ? 413 : 400;
        std::string what = error.message();
        if (is_large) what = kLargeHead;
        if (has_large_body) what = large_body();
        co_await answer_error(status, what);
        co_return false;
      }
      if (parser.is_header_done()) co_return true;
      if (in_.size() > shared_.options.max_head_bytes) {
        const std::string what = kLargeHead;
        co_await answer_error(431, what);
        co_return false;
      }
      if (!co_await more()) co_return false;
    }
  }

  static HttpRequest head_of(const Parser& parser) {
    const auto& message = parser.get();
    HttpRequest out;
    out.method = std::string(message.method_string());
    out.target = std::string(message.target());
    out.path = out.target.substr(0, out.target.find_first_of("?#"));
    for (const auto& field : message) {
      std::string name(field.name_string());
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      out.headers.emplace_back(std::move(name), std::string(field.value()));
    }
    return out;
  }

  net::awaitable<bool> read_body(Parser& parser, HttpRequest& request) {
    const HttpServerOptions& options = shared_.options;
    const auto length = parser.content_length();
    const std::size_t n_announced = length ? static_cast<std::size_t>(*length) : 0;
    if (n_announced > options.max_body_bytes) {
      const std::string large = large_body();
      co_await answer_error(413, large);
      co_return false;
    }
    const std::optional<HttpResponse> refusal = shared_.handler.refuse(request);
    if (refusal) {
      co_await write_plain(*refusal);
      co_return false;
    }
    if (shared_.bodies_bytes + n_announced > options.max_all_bodies_bytes) {
      const std::string busy = kBusy;
      co_await answer_error(503, busy);
      co_return false;
    }
    if (request.header("expect") == "100-continue" && in_.empty()) {
      error_code error;
      co_await transport_->write("HTTP/1.1 100 Continue\r\n\r\n", error);
      if (error) co_return false;
    }
    const auto begin = Clock::now() + options.body_timeout;
    std::size_t n_read = 0;
    bool is_whole = parser.is_done();
    takes_body_ = !is_whole;
    int status = 0;
    std::string what;
    while (!is_whole) {
      error_code error;
      bool wants_more = false;
      const std::size_t before = in_.size();
      parse(parser, error, wants_more);
      n_read += before - in_.size();
      deadline_ = begin + std::chrono::seconds(n_read / (32 << 10));
      if (error) {
        status = error == http::error::body_limit ? 413 : 400;
        what = error == http::error::body_limit ? large_body() : error.message();
        break;
      }
      is_whole = parser.is_done();
      if (is_whole) break;
      if (shared_.bodies_bytes + n_read > options.max_all_bodies_bytes) {
        status = 503;
        what = kBusy;
        break;
      }
      if (in_.empty() || wants_more || before == in_.size())
        if (!co_await more()) break;
    }
    takes_body_ = false;
    if (status != 0) co_await answer_error(status, what);
    if (!is_whole) co_return false;
    request.body = std::move(parser.get().body());
    shared_.bodies_bytes += request.body.size();
    co_return true;
  }

  // Writes what comes until the answer has ended; false when the client is gone.
  net::awaitable<bool> write_answer() {
    for (;;) {
      bool ended = false;
      const std::string bytes = current_->take(ended);
      if (bytes.empty()) {
        if (ended) co_return true;
        if (in_closed_ || !current_->is_open()) break;
        co_await out_notice_.wait();
        continue;
      }
      error_code error;
      deadline_ = Clock::now() + shared_.options.write_timeout;
      co_await transport_->write(bytes, error);
      deadline_ = kNever;
      if (error) break;
      if (ended) co_return true;
    }
    current_->disconnect();
    co_return false;
  }

  Shared& shared_;
  std::unique_ptr<Transport> transport_;
  std::array<char, kIdleBuffer_bytes> small_;
  std::string in_;  // read and not yet parsed
  bool in_closed_ = false, discard_ = false, takes_body_ = false;
  bool is_idle_ = false, reads_request_ = false, timed_out_ = false;
  Notice in_notice_, room_notice_, out_notice_;
  Clock::time_point deadline_ = kNever;
  std::shared_ptr<Outbox> current_;
};

bool Outbox::put(std::string_view bytes, bool is_end, bool is_limited) {
  bool is_slow = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || ended_) return false;
    is_slow = is_limited && pending_.size() + bytes.size() > shared_.options.max_unread_bytes;
    if (!is_slow) {
      pending_ += bytes;
      ended_ = is_end;
      if (is_end) on_disconnect_ = nullptr;
      if (std::exchange(noticed_, true)) return true;
    }
  }
  if (is_slow) {
    ++shared_.n_slow_readers;
    gone_.store(true, std::memory_order_release);
    net::post(shared_.io, [weak = connection_] {
      if (const auto connection = weak.lock()) connection->drop();
    });
    return false;
  }
  notice();
  return true;
}

void Outbox::notice() {
  net::post(shared_.io, [weak = connection_] {
    if (const auto connection = weak.lock()) connection->wake_writer();
  });
}

int signal_pipe[2] = {-1, -1};  // a handler may do little more than write

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& options, HttpHandler& handler) : shared(options, handler), tick(shared.io) {}

  void bind_all() {
    raise_file_limit();
    const HttpServerOptions& options = shared.options;
    if (options.ssl_certfile.empty() != options.ssl_keyfile.empty())
      fail(ErrorCode::kInvalidArgument, "--ssl-certfile and --ssl-keyfile go together");
    if (!options.ssl_certfile.empty()) load_certificate();
    if (options.uds.empty()) {
      bind_tcp();
    } else {
      bind_local();
    }
  }

  void load_certificate() {
    const HttpServerOptions& options = shared.options;
    tls = std::make_unique<net::ssl::context>(net::ssl::context::tls_server);
    error_code error;
    tls->set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                     net::ssl::context::no_tlsv1_1);
    SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);  // idle connections hold none
    tls->use_certificate_chain_file(options.ssl_certfile, error);
    if (error) fail(ErrorCode::kInvalidArgument, "{}: {}", options.ssl_certfile, error.message());
    tls->use_private_key_file(options.ssl_keyfile, net::ssl::context::pem, error);
    if (error) fail(ErrorCode::kInvalidArgument, "{}: {}", options.ssl_keyfile, error.message());
  }

  void bind_tcp() {
    const HttpServerOptions& options = shared.options;
    const std::string where = fmt::format("{}:{}", options.host, options.port);
    error_code error;
    Tcp::resolver resolver(shared.io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                        Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
    if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
    for (const auto& entry : found) {
      const Tcp::endpoint endpoint = entry.endpoint();
      Tcp::acceptor acceptor(shared.io);
      acceptor.open(endpoint.protocol(), error);
      if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
      acceptor.set_option(Tcp::acceptor::reuse_address(true));
      if (endpoint.address().is_v6()) acceptor.set_option(net::ip::v6_only(false));
      if (options.reuse_port)
        acceptor.set_option(net::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>(true));
      acceptor.bind(endpoint, error);
      if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
      if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
      const auto bound = acceptor.local_endpoint();
      const std::string address = bound.address().to_string();
      endpoints.push_back(fmt::format("{}://{}:{}", tls ? "https" : "http",
                                      bound.address().is_v6() ? "[" + address + "]" : address, bound.port()));
      tcp.push_back(std::move(acceptor));
    }
  }

  void bind_local() {
    const std::string& path = shared.options.uds;
    struct stat status {};
    error_code error;
    if (::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
      Local::socket probe(shared.io);  // what a process that has ended left behind
      probe.connect(Local::endpoint(path), error);
      if (!error) fail(ErrorCode::kIo, "{}: another process listens there", path);
      ::unlink(path.c_str());
    }
    try {
      local = std::make_unique<Local::acceptor>(shared.io, Local::endpoint(path));
    } catch (const boost::system::system_error& failure) {
      fail(ErrorCode::kIo, "{}: {}", path, failure.code().message());
    }
    endpoints.push_back("unix:" + path);
  }

  void take(std::unique_ptr<Transport> transport) {
    ++shared.n_accepted;
    if (shared.n_connections < shared.options.max_connections) {
      std::make_shared<Connection>(shared, std::move(transport))->start();
      return;
    }
    ++shared.n_refused;
    net::co_spawn(shared.io, turn_away(std::move(transport)), net::detached);
  }
  Task turn_away(std::unique_ptr<Transport> transport) {
    error_code error;
    const HttpResponse response = shared.handler.protocol_error(503, "too many connections");
    const std::string text =
        head_text(response, false, fmt::format("Content-Length: {}\r\n", response.body.size())) +
        response.body;
    if (!tls) co_await transport->write(text, error);  // a handshake is what the machine has no time for
    co_await transport->end_writing(error);
    transport->close();
  }

  template <typename Acceptor>
  Task accept_from(Acceptor& acceptor) {
    for (;;) {
      error_code error;
      auto socket = co_await acceptor.async_accept(net::redirect_error(net::use_awaitable, error));
      if (!acceptor.is_open()) co_return;
      if (error) {  // no descriptors are left, as a rule: others will be closed
        net::steady_timer pause(shared.io, kTick);
        error_code ignored;
        co_await pause.async_wait(net::redirect_error(net::use_awaitable, ignored));
        continue;
      }
      take(transport_of(std::move(socket)));
    }
  }
  std::unique_ptr<Transport> transport_of(Local::socket socket) {
    return std::make_unique<PlainTransport<Local::socket>>(std::move(socket));
  }
  std::unique_ptr<Transport> transport_of(Tcp::socket socket) {
    error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    if (tls) return std::make_unique<TlsTransport>(std::move(socket), *tls);
    return std::make_unique<PlainTransport<Tcp::socket>>(std::move(socket));
  }

  Task watch() {
    for (;;) {
      error_code ignored;
      tick.expires_after(kTick);
      co_await tick.async_wait(net::redirect_error(net::use_awaitable, ignored));
      const auto now = Clock::now();
      // Dropping a connection only wakes its coroutines: the set does not change under this loop.
      for (Connection* connection : shared.connections) connection->tick(now);
    }
  }

  void start() {
    for (Tcp::acceptor& acceptor : tcp) net::co_spawn(shared.io, accept_from(acceptor), net::detached);
    if (local) net::co_spawn(shared.io, accept_from(*local), net::detached);
    net::co_spawn(shared.io, watch(), net::detached);
    thread = std::thread([this] {
      for (;;) try {
          shared.io.run();
          return;
        } catch (const std::exception& failure) {
          log_warning("network: {}", failure.what());
        }
    });
  }

  // On the network thread. What clients have connected already is accepted before the door closes.
  template <typename Acceptor>
  void close_door(Acceptor& acceptor) {
    error_code error;
    acceptor.non_blocking(true, error);
    while (!error) {
      auto socket = acceptor.accept(error);
      if (!error) take(transport_of(std::move(socket)));
    }
    acceptor.close(error);
  }
  void on_network(const std::function<void()>& action) {
    std::promise<void> done;
    net::post(shared.io, [&] {
      action();
      done.set_value();
    });
    done.get_future().wait();
  }

  void drain(std::chrono::milliseconds limit) {
    on_network([this] {
      for (Tcp::acceptor& acceptor : tcp) close_door(acceptor);
      if (local) {
        close_door(*local);
        ::unlink(shared.options.uds.c_str());
      }
      shared.draining = true;
    });
    const auto begin = Clock::now();
    // Idle connections may have a request under way: they get a while.
    const auto grace = std::min<std::chrono::milliseconds>(limit, std::chrono::milliseconds(1000));
    while (shared.n_connections > 0 && Clock::now() < begin + limit) {
      if (Clock::now() >= begin + grace) on_network([this] { drop_all(true); });
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void drop_all(bool only_idle) {
    for (Connection* connection : shared.connections)
      if (!only_idle || connection->is_idle()) connection->drop();
  }

  ~Impl() {
    if (!thread.joinable()) return;
    on_network([this] { drop_all(false); });
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (shared.n_connections > 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    shared.io.stop();
    thread.join();
  }

  Shared shared;
  std::unique_ptr<net::ssl::context> tls;
  std::vector<Tcp::acceptor> tcp;
  std::unique_ptr<Local::acceptor> local;
  net::steady_timer tick;
  std::vector<std::string> endpoints;
  std::thread thread;
};

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {
  impl_->bind_all();
}
HttpServer::~HttpServer() = default;

void HttpServer::start() { impl_->start(); }
const std::vector<std::string>& HttpServer::endpoints() const noexcept { return impl_->endpoints; }
void HttpServer::drain(std::chrono::milliseconds limit) { impl_->drain(limit); }

void HttpServer::catch_signals() {
  if (pipe2(signal_pipe, O_CLOEXEC) != 0) fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  struct sigaction action {};
  action.sa_handler = [](int number) {
    const auto byte = static_cast<unsigned char>(number);
    static_cast<void>(!write(signal_pipe[1], &byte, 1));
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int HttpServer::wait_for_signal() {
  unsigned char number = 0;
  while (read(signal_pipe[0], &number, 1) != 1) {
  }
  return number;
}

HttpServerCounts HttpServer::counts() const noexcept {
  const Shared& s = impl_->shared;
  return {s.n_connections, s.n_accepted, s.n_refused, s.n_slow_readers};
}

}  // namespace triptych::server
