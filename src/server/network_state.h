// What all connections of a server share.
#pragma once

#include <atomic>
#include <cstddef>
#include <unordered_set>

#include "server/http_server.h"
#include "server/network.h"

namespace triptych::server {

class Connection;

// But for the atomic counts used on the network thread only.
struct NetworkState {
  NetworkState(const HttpServerOptions& o, HttpHandler& h) : options(o), handler(h) {}
  const HttpServerOptions options;
  HttpHandler& handler;
  net::io_context io{1};
  std::unordered_set<Connection*> connections;
  std::size_t bodies_bytes = 0;
  bool draining = false;
  std::atomic<std::size_t> n_connections{0}, n_accepted{0}, n_refused{0}, n_slow_readers{0};
};

}  // namespace triptych::server
