// Where a server listens: binds addresses or a Unix socket, with TLS or without, and makes connections of
// what comes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/network_state.h"
#include "server/transport.h"

namespace triptych::server {

class Listener {
 public:
  /// Binds as the options of `state` say. Throws Error(kIo) naming the address, kInvalidArgument for
  /// certificate files that cannot be used. Borrows the state.
  explicit Listener(NetworkState& state);

  /// "http://127.0.0.1:8000", "unix:/run/x.sock".
  const std::vector<std::string>& endpoints() const noexcept { return endpoints_; }
  /// Begins to accept.
  void start();
  /// On the network thread. What clients have connected already is accepted before the door closes.
  void close();

 private:
  void load_certificate();
  void bind_tcp();
  void bind_local();
  template <typename Acceptor>
  Task accept_from(Acceptor& acceptor);
  template <typename Acceptor>
  void close_door(Acceptor& acceptor);
  template <typename Socket>
  void take(Socket socket);
  Task turn_away(std::unique_ptr<Transport> transport);

  NetworkState& state_;
  std::unique_ptr<net::ssl::context> tls_;  // null: without
  std::vector<Tcp::acceptor> tcp_;
  std::unique_ptr<Local::acceptor> local_;
  std::vector<std::string> endpoints_;
};

}  // namespace triptych::server
