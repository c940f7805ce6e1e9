// What every answer has beside what was answered: its id, whether a browser may read it, its place in the
// metrics and in the log.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/metrics.h"
#include "server/request_log.h"

namespace triptych::server {

struct ServedRoute {
  std::string name;      // of a fixed set, for the metrics
  std::string origin;    // whose pages may read the answer; empty: nobody's
  std::string key_name;  // for the log
};

class ServedExchange final : public Exchange {
 public:
  ServedExchange(std::shared_ptr<Exchange> inner, ServerMetrics& metrics, LogRequests log, ServedRoute route);
  ~ServedExchange() override;  // counts a client that has left
  ServedExchange(const ServedExchange&) = delete;
  ServedExchange& operator=(const ServedExchange&) = delete;

  const HttpRequest& request() const noexcept override { return inner_->request(); }
  std::string take_body() override;
  void respond(HttpResponse response) override;
  void start_stream(const HttpResponse& head) override;
  bool send(std::string_view bytes) override { return inner_->send(bytes); }
  void end_stream() override;
  bool is_open() const noexcept override { return inner_->is_open(); }
  void on_disconnect(std::function<void()> callback) override { inner_->on_disconnect(std::move(callback)); }
  void note(const AnswerCounts& counts) override { record_.counts = counts; }

 private:
  void complete(HttpResponse& response);
  void end();

  const std::shared_ptr<Exchange> inner_;
  ServerMetrics& metrics_;
  const LogRequests log_;
  const std::string origin_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  RequestRecord record_;
  bool ended_ = false;
};

}  // namespace triptych::server
