#include "server/transport.h"

#include <utility>

namespace triptych::server {
namespace {

template <typename Socket>
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}
  Task handshake(error_code&) override { co_return; }
  net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) override {
    co_return co_await socket_.async_read_some(into, net::redirect_error(net::use_awaitable, error));
  }
  Task write(std::string_view bytes, error_code& error) override {
    co_await net::async_write(socket_, net::buffer(bytes), net::redirect_error(net::use_awaitable, error));
  }
  Task end_writing(error_code& error) override {
    socket_.shutdown(Socket::shutdown_send, error);
    co_return;
  }
  void close() noexcept override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(Tcp::socket socket, net::ssl::context& context) : stream_(std::move(socket), context) {}
  Task handshake(error_code& error) override {
    co_await stream_.async_handshake(net::ssl::stream_base::server,
                                     net::redirect_error(net::use_awaitable, error));
  }
  net::awaitable<std::size_t> read_some(net::mutable_buffer into, error_code& error) override {
    co_return co_await stream_.async_read_some(into, net::redirect_error(net::use_awaitable, error));
  }
  Task write(std::string_view bytes, error_code& error) override {
    co_await net::async_write(stream_, net::buffer(bytes), net::redirect_error(net::use_awaitable, error));
  }
  Task end_writing(error_code& error) override {
    // The client's own end is not waited for: a read may be under way, and the session is over either way.
    SSL_set_quiet_shutdown(stream_.native_handle(), 0);
    SSL_set_shutdown(stream_.native_handle(), SSL_RECEIVED_SHUTDOWN);
    co_await stream_.async_shutdown(net::redirect_error(net::use_awaitable, error));
    error_code ignored;
    stream_.lowest_layer().shutdown(Tcp::socket::shutdown_send, ignored);
  }
  void close() noexcept override {
    error_code ignored;
    stream_.lowest_layer().close(ignored);
  }

 private:
  net::ssl::stream<Tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Transport> make_transport(Local::socket socket) {
  return std::make_unique<PlainTransport<Local::socket>>(std::move(socket));
}

std::unique_ptr<Transport> make_transport(Tcp::socket socket, net::ssl::context* tls) {
  error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  if (tls != nullptr) return std::make_unique<TlsTransport>(std::move(socket), *tls);
  return std::make_unique<PlainTransport<Tcp::socket>>(std::move(socket));
}

}  // namespace triptych::server
