#include "server/serve.h"

#include <optional>
#include <utility>

namespace triptych::server {

void serve(ServeOptions options) {
  Service service(std::move(options.service));
  std::optional<HttpServer> http;
  const auto listen = [&] {
    http.emplace(options.http, service);
    service.set_http_counts([&http] { return http->counts(); });
    http->start();
  };
  if (!options.http.reuse_port) listen();
  try {
    service.set_model(std::make_unique<ModelHost>(options.load(), options.engine, options.names));
    if (!http) listen();
    if (options.on_ready) options.on_ready(http->endpoints());
    http->wait_for_signal();
    service.begin_drain();
    if (options.on_drain) options.on_drain(service.n_in_flight());
    http->drain(options.drain);
  } catch (...) {
    service.stop();
    throw;
  }
  service.stop();  // before the network, which its answers use
  http->drain(std::chrono::milliseconds(1000));
}

}  // namespace triptych::server
