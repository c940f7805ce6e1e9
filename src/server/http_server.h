// HTTP/1.1 over TCP, TLS and Unix sockets (RFC 9112), by Boost.Beast's parser and Asio. One thread does all
// of the network and nothing else: it neither computes nor decodes.
//
// Limits: heads and bodies by size, the bodies of all connections together, connections by number, bytes that
// wait for a client by number (one that does not read is dropped), and time: for a head, a body, a pause
// between requests, and a write that makes no progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/http.h"

namespace triptych::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // a name or an address; "::" takes IPv4, too
  int port = 8000;                 // 0: any that is free
  std::string uds;                 // path of a Unix socket, in place of host and port
  std::string ssl_certfile, ssl_keyfile;
  bool reuse_port = false;  // several processes may listen on the port (SO_REUSEPORT)
  std::size_t max_connections = 16384;
  std::size_t max_head_bytes = 32 << 10;
  std::size_t max_body_bytes = std::size_t{64} << 20;
  std::size_t max_all_bodies_bytes = std::size_t{512} << 20;
  std::size_t max_unread_bytes = 1 << 20;  // of one answer, waiting for its client
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};  // and a second for every 32 KiB
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{30'000};
};

struct HttpServerCounts {
  std::size_t n_connections = 0;
  std::size_t n_accepted = 0;
  std::size_t n_refused = 0;       // over max_connections
  std::size_t n_slow_readers = 0;  // dropped
};

class HttpServer {
 public:
  /// Binds. Throws Error(kIo) naming the address, kInvalidArgument for certificate files that cannot be used.
  /// Borrows the handler.
  HttpServer(const HttpServerOptions& options, HttpHandler& handler);
  /// Ends what still runs; exchanges may not be used after that.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Begins to accept, on the network thread.
  void start();
  /// "http://127.0.0.1:8000", "unix:/run/x.sock".
  const std::vector<std::string>& endpoints() const noexcept;
  /// From here on SIGTERM and SIGINT are kept for wait_for_signal; a second one ends the process.
  static void catch_signals();
  /// Waits for SIGTERM or SIGINT; returns its number. A second one then ends the process as usual.
  int wait_for_signal();
  /// Accepts no more; connections end after the answer to what they have sent. Returns when none is left or
  /// the time is over.
  void drain(std::chrono::milliseconds limit);
  HttpServerCounts counts() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triptych::server
