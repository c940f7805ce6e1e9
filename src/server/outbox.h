// The answer to one request on its way to the connection: its bytes as they go over the wire, whole or in
// chunks, with a limit on those that wait for the client.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/network_state.h"

namespace triptych::server {

/// Head and body of an answer.
std::string response_text(const HttpResponse& response, bool keep_alive, bool with_body = true);

// Locked: those who answer are any thread, the connection is the network's.
class Outbox final : public Exchange {
 public:
  Outbox(NetworkState& state, std::weak_ptr<Connection> connection, HttpRequest request, bool keep_alive,
         bool is_http_1_0);

  const HttpRequest& request() const noexcept override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(HttpResponse response) override;
  void start_stream(const HttpResponse& head) override;
  bool send(std::string_view bytes) override;
  void end_stream() override;
  bool is_open() const noexcept override { return !gone_.load(std::memory_order_acquire); }
  void on_disconnect(std::function<void()> callback) override;

  // What follows is the connection's side.
  /// What is to be written now; may be empty. `ended`: nothing follows.
  std::string take(bool& ended);
  void disconnect();
  bool keep_alive() const noexcept { return keep_alive_; }

 private:
  bool put(std::string_view bytes, bool is_end, bool is_limited);

  NetworkState& state_;
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

}  // namespace triptych::server
