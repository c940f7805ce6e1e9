#include "server/outbox.h"

#include <fmt/core.h>

#include <array>
#include <ctime>
#include <utility>

#include "server/connection.h"

namespace triptych::server {
namespace {

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

}  // namespace

std::string response_text(const HttpResponse& response, bool keep_alive, bool with_body) {
  const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  std::string out = head_text(response, keep_alive, framing);
  if (with_body) out += response.body;
  return out;
}

Outbox::Outbox(NetworkState& state, std::weak_ptr<Connection> connection, HttpRequest request,
               bool keep_alive, bool is_http_1_0)
    : state_(state),
      connection_(std::move(connection)),
      request_(std::move(request)),
      keep_alive_(keep_alive),
      is_http_1_0_(is_http_1_0) {}

void Outbox::respond(HttpResponse response) {
  put(response_text(response, keep_alive_, request_.method != "HEAD"), true, false);
}

void Outbox::start_stream(const HttpResponse& head) {
  if (is_http_1_0_) keep_alive_ = false;  // the end of the connection is the end of the answer
  put(head_text(head, keep_alive_, is_http_1_0_ ? "" : "Transfer-Encoding: chunked\r\n"), false, false);
}

bool Outbox::send(std::string_view bytes) {
  if (bytes.empty() || request_.method == "HEAD") return is_open();
  if (is_http_1_0_) return put(bytes, false, true);
  return put(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes), false, true);
}

void Outbox::end_stream() { put(is_http_1_0_ || request_.method == "HEAD" ? "" : "0\r\n\r\n", true, false); }

void Outbox::on_disconnect(std::function<void()> callback) {
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

std::string Outbox::take(bool& ended) {
  const std::lock_guard lock(mutex_);
  noticed_ = false;
  ended = ended_;
  return std::exchange(pending_, {});
}

void Outbox::disconnect() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_.store(true, std::memory_order_release);
    if (ended_) return;
    callback = std::exchange(on_disconnect_, nullptr);  // once
  }
  if (callback) callback();
}

bool Outbox::put(std::string_view bytes, bool is_end, bool is_limited) {
  bool is_slow = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || ended_) return false;
    is_slow = is_limited && pending_.size() + bytes.size() > state_.options.max_unread_bytes;
    if (!is_slow) {
      pending_ += bytes;
      ended_ = is_end;
      if (is_end) on_disconnect_ = nullptr;
      if (std::exchange(noticed_, true)) return true;
    }
  }
  if (is_slow) {
    ++state_.n_slow_readers;
    gone_.store(true, std::memory_order_release);
  }
  // Only the network's thread may hold a connection.
  net::post(state_.io, [weak = connection_, is_slow] {
    const auto connection = weak.lock();
    if (!connection) return;
    if (is_slow) {
      connection->drop();
    } else {
      connection->wake_writer();
    }
  });
  return !is_slow;
}

}  // namespace triptych::server
