// One client: reads its requests, hands them to the handler and writes the answers, one after another.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/network_state.h"
#include "server/outbox.h"
#include "server/transport.h"

namespace triptych::server {

// On the network thread only.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  Connection(NetworkState& state, std::unique_ptr<Transport> transport);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  /// The answer has something to write.
  void wake_writer() { out_notice_.notify(); }
  void drop();
  /// Looks whether its time is over.
  void tick(Clock::time_point now);
  /// Between two requests, with nothing read of the next.
  bool is_idle() const noexcept { return is_idle_; }

 private:
  struct Parser;
  static constexpr auto kNever = Clock::time_point::max();
  static constexpr std::size_t kIdleBuffer_bytes = 4 << 10;

  Task serve();
  Task read_all();
  net::awaitable<bool> serve_one();
  net::awaitable<bool> more();
  void parse(Parser& parser, error_code& error, bool& wants_more);
  net::awaitable<bool> read_head(Parser& parser);
  net::awaitable<bool> read_body(Parser& parser, HttpRequest& request);
  net::awaitable<bool> write_answer();
  Task answer_error(int status, const std::string& what);
  Task write_plain(const HttpResponse& response);
  std::string large_body() const;

  NetworkState& state_;
  std::unique_ptr<Transport> transport_;
  std::array<char, kIdleBuffer_bytes> small_;
  std::string in_;  // read and not yet parsed
  bool in_closed_ = false, discard_ = false, takes_body_ = false;
  bool is_idle_ = false, reads_request_ = false, timed_out_ = false;
  Notice in_notice_, room_notice_, out_notice_;
  Clock::time_point deadline_ = kNever;
  std::shared_ptr<Outbox> current_;
};

}  // namespace triptych::server
