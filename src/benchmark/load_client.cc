// The only file of this layer that sees Boost: its headers are dear to compile.
#include "benchmark/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

// Boost 1.74 asks clang for <experimental/coroutine>, which libstdc++ has not; the standard's own header
// does.
#if defined(__clang__) && !defined(BOOST_ASIO_HAS_CO_AWAIT)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#endif
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "benchmark/load_events.h"

namespace triptych {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Tcp = net::ip::tcp;
using Task = net::awaitable<void>;

constexpr std::size_t kMaxRefusal_bytes = std::size_t{1} << 20;  // of a body that is not streamed
constexpr std::size_t kRead_bytes = std::size_t{64} << 10;
constexpr int kMaxClients = 65536;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}
Clock::duration from_ms(double ms) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

double process_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// Each connection is a descriptor.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct Connection {
  explicit Connection(net::io_context& io) : stream(io), chunk(kRead_bytes) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  std::vector<char> chunk;
  bool is_open = false;
};

// The bytes of one answer's body as they come.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  virtual void begin(int status, std::string_view content_type) = 0;
  virtual void take(std::string_view bytes) = 0;
};

// Whether the answer came whole; why not.
struct Outcome {
  std::string error;  // empty: it did
  bool had_bytes = false;
};

class HttpClient {
 public:
  HttpClient(net::io_context& io, const LoadTarget& target, const LoadTestOptions& options)
      : options_(options), target_(target) {
    error_code error;
    Tcp::resolver resolver(io);
    endpoints_ =
        resolver.resolve(target.host, std::to_string(target.port), Tcp::resolver::numeric_service, error);
    if (error) fail(ErrorCode::kIo, "{}: {}", target.host, error.message());
  }

  std::string head(std::string_view method, std::string_view path, std::optional<std::size_t> n_body) const {
    const bool is_v6 = target_.host.find(':') != std::string::npos;
    std::string out =
        fmt::format("{} {}{} HTTP/1.1\r\nHost: {}{}{}:{}\r\nAccept: */*\r\n", method, target_.prefix, path,
                    is_v6 ? "[" : "", target_.host, is_v6 ? "]" : "", target_.port);
    if (!options_.api_key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", options_.api_key);
    if (n_body) out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", *n_body);
    return out + "\r\n";
  }

  std::size_t n_connects() const noexcept { return n_connects_; }

  // One request and its answer; again on a new connection when a kept one turns out to be closed.
  Task exchange(Connection& connection, const std::string& head, const std::string& body, BodyReader& reader,
                Outcome& out) {
    connection.stream.expires_after(from_ms(options_.timeout_s * 1e3));
    const bool was_open = connection.is_open;
    co_await try_exchange(connection, head, body, reader, out);
    if (was_open && !out.error.empty() && !out.had_bytes) {
      out = {};
      co_await try_exchange(connection, head, body, reader, out);
    }
    connection.stream.expires_never();
  }

 private:
  Task try_exchange(Connection& c, const std::string& head, const std::string& body, BodyReader& reader,
                    Outcome& out) {
    error_code error;
    if (!c.is_open) {
      c.buffer.clear();
      ++n_connects_;
      co_await c.stream.async_connect(endpoints_, net::redirect_error(net::use_awaitable, error));
      if (error) {
        out.error = "no connection: " + error.message();
        close(c);
        co_return;
      }
      c.is_open = true;
      c.stream.socket().set_option(Tcp::no_delay(true), error);
    }
    const std::array<net::const_buffer, 2> parts = {net::buffer(head), net::buffer(body)};
    error_code write_error;  // a server may refuse before it has read all: its answer counts
    co_await net::async_write(c.stream, parts, net::redirect_error(net::use_awaitable, write_error));
    co_await read_answer(c, reader, out);
    if (write_error && out.error.empty()) close(c);
  }

  Task read_answer(Connection& c, BodyReader& reader, Outcome& out) {
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // Boost 1.74 has a fault with none
    error_code error;
    co_await http::async_read_header(c.stream, c.buffer, parser,
                                     net::redirect_error(net::use_awaitable, error));
    out.had_bytes = parser.got_some();
    if (error) {
      out.error = "no answer: " + error.message();
      close(c);
      co_return;
    }
    try {
      const auto type = parser.get()[http::field::content_type];
      reader.begin(static_cast<int>(parser.get().result_int()), {type.data(), type.size()});
      while (!parser.is_done()) {
        auto& body = parser.get().body();
        body.data = c.chunk.data();
        body.size = c.chunk.size();
        co_await http::async_read_some(c.stream, c.buffer, parser,
                                       net::redirect_error(net::use_awaitable, error));
        if (error == http::error::need_buffer) error = {};
        if (error) {
          out.error = "the answer was cut off: " + error.message();
          break;
        }
        reader.take({c.chunk.data(), c.chunk.size() - body.size});
      }
    } catch (const Error& failure) {
      out.error = failure.what();
    }
    if (!out.error.empty() || !parser.keep_alive()) close(c);
  }

  static void close(Connection& c) {
    c.stream.close();
    c.is_open = false;
  }

  const LoadTestOptions& options_;
  const LoadTarget& target_;
  Tcp::resolver::results_type endpoints_;
  std::size_t n_connects_ = 0;
};

// The events of a chat, or the body that refuses it.
class ChatReader : public BodyReader {
 public:
  ChatReader(ServedRequest& to, Clock::time_point arrival) : to_(to), arrival_(arrival) {}

  void begin(int status, std::string_view content_type) override {
    status_ = status;
    streams_ = status == 200 && content_type.starts_with("text/event-stream");
  }
  void take(std::string_view bytes) override {
    if (!streams_) {
      if (body_.size() < kMaxRefusal_bytes) body_ += bytes;
      return;
    }
    lines_.feed(bytes, [this](std::string_view data) { take_event(read_chat_event(data)); });
  }
  int status() const noexcept { return status_; }
  // Why the answer is no answer; empty: it is one.
  std::string problem() const {
    if (status_ != 200) return fmt::format("{}: {}", status_, refusal_message(body_));
    if (!streams_) return "expected a stream of events";
    if (error_) return *error_;
    return is_ended_ ? "" : "the stream has no end ([DONE])";
  }

 private:
  void take_event(const ChatEvent& event) {
    is_ended_ = is_ended_ || event.is_last;
    if (event.error && !error_) error_ = *event.error;
    if (event.has_text) {
      const Clock::time_point now = Clock::now();
      if (n_texts_++ == 0) {
        to_.timings.first_token_ms = ms_between(arrival_, now);
      } else {
        to_.gaps_ms.push_back(static_cast<float>(ms_between(last_, now)));
      }
      last_ = now;
      if (!has_usage_) to_.n_answer_tokens = n_texts_;
    }
    if (event.n_answer_tokens) {
      has_usage_ = true;
      to_.n_answer_tokens = *event.n_answer_tokens;
    }
    if (event.n_prompt_tokens) to_.n_prompt_tokens = *event.n_prompt_tokens;
    if (event.n_image_tokens) to_.n_image_tokens = *event.n_image_tokens;
    if (event.n_cached_tokens) to_.n_reused_tokens = *event.n_cached_tokens;
    const GenerationTimings& t = event.timings;
    if (t.decode_ms + t.prefill_ms + t.queue_ms <= 0) return;
    const double first_token_ms = to_.timings.first_token_ms;
    to_.timings = t;
    to_.timings.first_token_ms = first_token_ms;
  }

  ServedRequest& to_;
  const Clock::time_point arrival_;
  EventLines lines_;
  std::string body_;
  std::optional<std::string> error_;
  Clock::time_point last_{};
  std::int64_t n_texts_ = 0;
  int status_ = 0;
  bool streams_ = false, is_ended_ = false, has_usage_ = false;
};

class Load {
 public:
  Load(const LoadTarget& target, const std::vector<std::string>& bodies,
       const std::vector<double>& arrivals_ms, const LoadTestOptions& options)
      : bodies_(bodies),
        arrivals_ms_(arrivals_ms),
        options_(options),
        client_(io_, target, options),
        order_(bodies.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (options.n_clients == 0)
      std::stable_sort(order_.begin(), order_.end(),
                       [&](std::size_t a, std::size_t b) { return arrivals_ms[a] < arrivals_ms[b]; });
    out_.run.requests.resize(bodies.size());
    out_.statuses.resize(bodies.size());
  }

  LoadRun run() {
    const double cpu_ms = process_cpu_ms();
    start_ = Clock::now();
    if (options_.n_clients > 0) {
      const auto n = std::min(bodies_.size(), static_cast<std::size_t>(options_.n_clients));
      for (std::size_t i = 0; i < n; ++i) spawn(loop());
    } else {
      spawn(schedule());
    }
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
    out_.run.wall_ms = ms_between(start_, Clock::now());
    out_.run.cpu_ms = process_cpu_ms() - cpu_ms;
    out_.n_connects = client_.n_connects();
    return std::move(out_);
  }

 private:
  void spawn(Task task) {
    net::co_spawn(io_, std::move(task), [this](std::exception_ptr failure) {
      if (!failure || failure_) return;
      failure_ = failure;
      io_.stop();
    });
  }

  // A client of a closed loop.
  Task loop() {
    Connection connection(io_);
    while (n_begun_ < order_.size()) {
      const std::size_t index = order_[n_begun_++];
      const Clock::time_point arrival = Clock::now();
      co_await ask(connection, index, arrival);
    }
  }

  Task schedule() {
    net::steady_timer timer(io_);
    for (const std::size_t index : order_) {
      const Clock::time_point arrival = start_ + from_ms(arrivals_ms_[index]);
      timer.expires_at(arrival);
      error_code ignored;
      co_await timer.async_wait(net::redirect_error(net::use_awaitable, ignored));
      spawn(ask_on_any(index, arrival));
    }
  }

  Task ask_on_any(std::size_t index, Clock::time_point arrival) {
    std::unique_ptr<Connection> connection;
    if (idle_.empty()) {
      connection = std::make_unique<Connection>(io_);
    } else {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    co_await ask(*connection, index, arrival);
    if (connection->is_open) idle_.push_back(std::move(connection));
  }

  Task ask(Connection& connection, std::size_t index, Clock::time_point arrival) {
    ServedRequest& served = out_.run.requests[index];
    served.arrival_ms = ms_between(start_, arrival);
    const std::string& body = bodies_[index];
    const std::string head = client_.head("POST", "/v1/chat/completions", body.size());
    ChatReader reader(served, arrival);
    Outcome outcome;
    co_await client_.exchange(connection, head, body, reader, outcome);
    out_.statuses[index] = reader.status();
    const bool is_refused = reader.status() != 0 && reader.status() != 200;
    const std::string problem = outcome.error.empty() || is_refused ? reader.problem() : outcome.error;
    if (!problem.empty()) served.error = RequestError{ErrorCode::kIo, problem};
    served.timings.total_ms = ms_between(arrival, Clock::now());
    ++n_done_;
    if (options_.on_progress) options_.on_progress(n_done_);
  }

  const std::vector<std::string>& bodies_;
  const std::vector<double>& arrivals_ms_;
  const LoadTestOptions& options_;
  net::io_context io_{1};
  HttpClient client_;
  std::vector<std::size_t> order_;
  std::size_t n_begun_ = 0, n_done_ = 0;
  std::vector<std::unique_ptr<Connection>> idle_;
  Clock::time_point start_{};
  std::exception_ptr failure_;
  LoadRun out_;
};

class TextReader : public BodyReader {
 public:
  void begin(int status, std::string_view) override { status_ = status; }
  void take(std::string_view bytes) override {
    if (body_.size() < kMaxRefusal_bytes) body_ += bytes;
  }
  int status_ = 0;
  std::string body_;
};

}  // namespace

LoadTarget parse_load_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](std::string_view expected) {
    fail(ErrorCode::kInvalidArgument, "expected {}, got \"{}\"", expected, url);
  };
  if (url.starts_with("https://"))
    refuse("http:// (for https put a proxy that speaks TLS in front of this side)");
  if (!url.starts_with(kScheme)) refuse("http://HOST[:PORT][/PREFIX]");
  std::string_view rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view prefix = rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
  const bool has_odd_byte =
      std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c == '\x7f'; });
  if (has_odd_byte || authority.find('@') != std::string_view::npos ||
      prefix.find_first_of("?#") != std::string_view::npos)
    refuse("a URL without blanks, user, query and fragment");
  LoadTarget out;
  out.prefix = prefix;
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse("a bracket behind the IPv6 address");
    out.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    out.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (out.host.empty()) refuse("http://HOST[:PORT][/PREFIX]");
  if (port.empty()) return out;
  port.remove_prefix(1);
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (problem != std::errc() || end != port.data() + port.size() || out.port < 1 || out.port > 65535)
    refuse("a port in [1, 65535]");
  return out;
}

LoadRun run_load(const LoadTarget& target, const std::vector<std::string>& bodies,
                 const std::vector<double>& arrivals_ms, const LoadTestOptions& options) {
  if (options.n_clients < 0 || options.n_clients > kMaxClients || !(options.timeout_s > 0) ||
      bodies.empty() || (options.n_clients == 0 && arrivals_ms.size() != bodies.size()))
    fail(ErrorCode::kInvalidArgument, "requests, clients and times: sizes out of range");
  raise_file_limit();
  return Load(target, bodies, arrivals_ms, options).run();
}

std::string first_served_model(const LoadTarget& target, const LoadTestOptions& options) {
  net::io_context io(1);
  HttpClient client(io, target, options);
  Connection connection(io);
  TextReader reader;
  Outcome outcome;
  const std::string head = client.head("GET", "/v1/models", std::nullopt);
  const std::string body;
  net::co_spawn(
      io, [&] { return client.exchange(connection, head, body, reader, outcome); },
      [](std::exception_ptr failure) {
        if (failure) std::rethrow_exception(failure);
      });
  io.run();
  const std::string where = fmt::format("{}:{}{}/v1/models", target.host, target.port, target.prefix);
  if (!outcome.error.empty()) fail(ErrorCode::kIo, "{}: {}", where, outcome.error);
  if (reader.status_ != 200)
    fail(ErrorCode::kIo, "{}: {}: {}", where, reader.status_, refusal_message(reader.body_));
  const Json document = parse_json(reader.body_, where);
  const std::vector<JsonView> models = JsonView(document, where).at("data").items();
  if (models.empty()) fail(ErrorCode::kIo, "{}: it names no model", where);
  return models.front().at("id").as_string();
}

}  // namespace triptych
