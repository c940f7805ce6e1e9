#include "server/served_exchange.h"

#include <utility>

namespace triptych::server {

ServedExchange::ServedExchange(std::shared_ptr<Exchange> inner, ServerMetrics& metrics, LogRequests log,
                               ServedRoute route)
    : inner_(std::move(inner)), metrics_(metrics), log_(log), origin_(std::move(route.origin)) {
  const HttpRequest& request = inner_->request();
  record_.id = request_id_of(request);
  record_.method = request.method;
  record_.route = std::move(route.name);
  record_.key_name = std::move(route.key_name);
  record_.n_body_bytes = request.body.size();
  record_.status = 499;  // until there is an answer; nginx's for a client that left
}

ServedExchange::~ServedExchange() { end(); }

std::string ServedExchange::take_body() {
  std::string body = inner_->take_body();
  if (log_ == LogRequests::kHash) record_.body_hash = hash_of_body(body);
  if (log_ == LogRequests::kText) record_.body_text = text_of_body(body);
  return body;
}

void ServedExchange::respond(HttpResponse response) {
  complete(response);
  end();
  inner_->respond(std::move(response));
}

void ServedExchange::start_stream(const HttpResponse& head) {
  HttpResponse own = head;
  complete(own);
  inner_->start_stream(own);
}

void ServedExchange::end_stream() {
  end();
  inner_->end_stream();
}

void ServedExchange::complete(HttpResponse& response) {
  record_.status = response.status;
  response.headers.emplace_back("x-request-id", record_.id);
  if (origin_.empty()) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", origin_);
  response.headers.emplace_back("Vary", "Origin");
}

void ServedExchange::end() {
  if (std::exchange(ended_, true)) return;
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  metrics_.count_http(record_.route, record_.status, s);
  if (log_ == LogRequests::kOff) return;
  record_.ms = s * 1e3;
  log_request(record_);
}

}  // namespace triptych::server
