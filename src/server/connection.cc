#include "server/connection.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/log.h"

namespace triptych::server {
namespace {

namespace http = boost::beast::http;

constexpr std::size_t kBodyBuffer_bytes = 64 << 10;
constexpr std::size_t kMaxPipelined_bytes = 64 << 10;
constexpr const char* kLargeHead = "the head of the request is too large";
constexpr const char* kBusy = "too many bytes of requests are being read";
constexpr std::chrono::milliseconds kLinger{2000};

template <typename Parser>
HttpRequest head_of(const Parser& parser) {
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

}  // namespace

struct Connection::Parser : http::request_parser<http::string_body> {};

Connection::Connection(NetworkState& state, std::unique_ptr<Transport> transport)
    : state_(state),
      transport_(std::move(transport)),
      in_notice_(state.io),
      room_notice_(state.io),
      out_notice_(state.io) {
  state_.connections.insert(this);
  ++state_.n_connections;
}

Connection::~Connection() {
  state_.connections.erase(this);
  --state_.n_connections;
}

void Connection::start() {
  auto self = shared_from_this();
  deadline_ = Clock::now() + state_.options.head_timeout;
  net::co_spawn(
      state_.io, [self] { return self->serve(); }, net::detached);
}

void Connection::drop() {
  transport_->close();
  in_notice_.notify();
  out_notice_.notify();
  room_notice_.notify();
}

void Connection::tick(Clock::time_point now) {
  if (now < deadline_) return;
  deadline_ = kNever;
  if (reads_request_) {  // which can still be answered
    timed_out_ = true;
    in_notice_.notify();
  } else {
    drop();
  }
}

Task Connection::serve() {
  const auto self = shared_from_this();
  error_code error;
  co_await transport_->handshake(error);
  if (error) {
    drop();
    co_return;
  }
  net::co_spawn(
      state_.io, [self] { return self->read_all(); }, net::detached);
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
Task Connection::read_all() {
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

// One request and its answer; false when the connection ends.
net::awaitable<bool> Connection::serve_one() {
  is_idle_ = true;
  deadline_ = Clock::now() + state_.options.idle_timeout;
  while (in_.empty())
    if (!co_await more()) co_return false;
  is_idle_ = false;
  reads_request_ = true;
  const auto parser = std::make_unique<Parser>();
  parser->header_limit(static_cast<std::uint32_t>(state_.options.max_head_bytes));
  parser->body_limit(state_.options.max_body_bytes);
  parser->eager(false);
  if (!co_await read_head(*parser)) co_return false;
  HttpRequest request = head_of(*parser);
  const bool is_http_1_0 = parser->get().version() < 11;
  const bool keep_alive = parser->keep_alive() && !state_.draining;
  if (!co_await read_body(*parser, request)) co_return false;
  reads_request_ = false;
  if (!is_http_1_0 && request.header("host").empty()) {  // RFC 9112, 3.2
    state_.bodies_bytes -= request.body.size();
    const std::string no_host = "the request has no Host";
    co_await answer_error(400, no_host);
    co_return false;
  }
  const std::size_t n_body = request.body.size();
  current_ = std::make_shared<Outbox>(state_, weak_from_this(), std::move(request), keep_alive, is_http_1_0);
  deadline_ = kNever;
  if (in_closed_) current_->disconnect();
  state_.handler.handle(current_);
  const bool is_whole = co_await write_answer();
  state_.bodies_bytes -= n_body;
  const bool goes_on = is_whole && current_->keep_alive() && !state_.draining;
  current_ = nullptr;
  co_return goes_on;
}

// Waits for more of a request; false when none will come.
net::awaitable<bool> Connection::more() {
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
void Connection::parse(Parser& parser, error_code& error, bool& wants_more) {
  error = {};
  wants_more = false;
  const std::size_t n = parser.put(net::buffer(in_), error);
  in_.erase(0, n);
  if (error == http::error::need_more) {
    error = {};
    wants_more = true;
  }
}

net::awaitable<bool> Connection::read_head(Parser& parser) {
  deadline_ = Clock::now() + state_.options.head_timeout;
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
    if (in_.size() > state_.options.max_head_bytes) {
      const std::string what = kLargeHead;
      co_await answer_error(431, what);
      co_return false;
    }
    if (!co_await more()) co_return false;
  }
}

net::awaitable<bool> Connection::read_body(Parser& parser, HttpRequest& request) {
  const HttpServerOptions& options = state_.options;
  const auto length = parser.content_length();
  const std::size_t n_announced = length ? static_cast<std::size_t>(*length) : 0;
  if (n_announced > options.max_body_bytes) {
    const std::string large = large_body();
    co_await answer_error(413, large);
    co_return false;
  }
  const std::optional<HttpResponse> refusal = state_.handler.refuse(request);
  if (refusal) {
    co_await write_plain(*refusal);
    co_return false;
  }
  if (state_.bodies_bytes + n_announced > options.max_all_bodies_bytes) {
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
    if (state_.bodies_bytes + n_read > options.max_all_bodies_bytes) {
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
  state_.bodies_bytes += request.body.size();
  co_return true;
}

// Writes what comes until the answer has ended; false when the client is gone.
net::awaitable<bool> Connection::write_answer() {
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
    deadline_ = Clock::now() + state_.options.write_timeout;
    co_await transport_->write(bytes, error);
    deadline_ = kNever;
    if (error) break;
    if (ended) co_return true;
  }
  current_->disconnect();
  co_return false;
}

// Callers keep what they pass in variables: GCC 12 destroys temporaries of an expression with co_await
// twice.
Task Connection::answer_error(int status, const std::string& what) {
  const HttpResponse response = state_.handler.protocol_error(status, what);
  co_await write_plain(response);
}
Task Connection::write_plain(const HttpResponse& response) {
  error_code error;
  reads_request_ = false;
  deadline_ = Clock::now() + state_.options.write_timeout;
  const std::string text = response_text(response, false);
  co_await transport_->write(text, error);
}

std::string Connection::large_body() const {
  return fmt::format("the body is too large: at most {} bytes are taken", state_.options.max_body_bytes);
}

}  // namespace triptych::server
