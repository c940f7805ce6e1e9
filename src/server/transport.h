// Bytes to and from a client, over whatever carries them.
#pragma once

#include <memory>
#include <string_view>

#include "server/network.h"

namespace triptych::server {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Task handshake(error_code& error) = 0;
  virtual net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) = 0;
  virtual Task write(std::string_view bytes, error_code& error) = 0;
  virtual Task end_writing(error_code& error) = 0;
  virtual void close() noexcept = 0;
};

std::unique_ptr<Transport> make_transport(Local::socket socket);
/// `tls` may be null: then the bytes go as they are. Borrowed.
std::unique_ptr<Transport> make_transport(Tcp::socket socket, net::ssl::context* tls);

}  // namespace triptych::server
