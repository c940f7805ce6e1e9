#include "server/serve.h"

#include <optional>
#include <utility>

#include "server/web_page.h"

namespace triptych::server {
namespace {

// The page asks for its files again only when they changed with the program.
std::optional<HttpResponse> web_page(std::string_view path) {
  const StaticPage* page = find_page(path);
  if (page == nullptr) return std::nullopt;
  return HttpResponse{.status = 200,
                      .content_type = std::string(page->content_type),
                      .body = std::string(page->body),
                      .headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                                  {"X-Content-Type-Options", "nosniff"},
                                  {"Referrer-Policy", "no-referrer"},
                                  {"Cache-Control", "no-cache"}}};
}

}  // namespace

void serve(ServeOptions options) {
  if (!options.service.find_page) options.service.find_page = web_page;
  Service service(std::move(options.service));
  options.engine.metrics = &service.metrics_registry();
  std::optional<HttpServer> http;
  const auto listen = [&] {
    http.emplace(options.http, service);
    service.set_http_counts([&http] { return http->counts(); });
    http->start();
  };
  HttpServer::catch_signals();  // before anyone can ask: whoever was answered may send one
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
