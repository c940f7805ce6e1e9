// `triptych serve` as a whole: model, engine, threads and network.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/load.h"
#include "server/http_server.h"
#include "server/service.h"

namespace triptych::server {

struct ServeOptions {
  HttpServerOptions http;
  ServiceOptions service;
  EngineOptions engine;
  std::vector<std::string> names;  // one or more; answers carry the first
  std::chrono::milliseconds drain{30'000};
  /// Loads the model; throws Error.
  std::function<std::unique_ptr<LoadedModel>()> load;
  /// Called when requests are answered, with where the server listens.
  std::function<void(const std::vector<std::string>& endpoints)> on_ready;
  /// Called when SIGTERM or SIGINT came and no new connections are taken.
  std::function<void(std::size_t n_in_flight)> on_drain;
};

/// Serves until SIGTERM or SIGINT, then answers what has begun, for as long as `drain` says. With
/// http.reuse_port it listens when the model is loaded, so that a process before it keeps its clients; else
/// at once, and says 503 until then.
void serve(ServeOptions options);

}  // namespace triptych::server
