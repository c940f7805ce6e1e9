#include "server/listener.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "server/connection.h"

namespace triptych::server {
namespace {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::unique_ptr<Transport> transport_of(Local::socket socket, net::ssl::context*) {
  return make_transport(std::move(socket));
}
std::unique_ptr<Transport> transport_of(Tcp::socket socket, net::ssl::context* tls) {
  return make_transport(std::move(socket), tls);
}

}  // namespace

Listener::Listener(NetworkState& state) : state_(state) {
  raise_file_limit();
  const HttpServerOptions& options = state_.options;
  if (options.ssl_certfile.empty() != options.ssl_keyfile.empty())
    fail(ErrorCode::kInvalidArgument, "--ssl-certfile and --ssl-keyfile go together");
  if (!options.ssl_certfile.empty()) load_certificate();
  if (options.uds.empty()) {
    bind_tcp();
  } else {
    bind_local();
  }
}

void Listener::load_certificate() {
  const HttpServerOptions& options = state_.options;
  tls_ = std::make_unique<net::ssl::context>(net::ssl::context::tls_server);
  error_code error;
  tls_->set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                    net::ssl::context::no_tlsv1_1);
  SSL_CTX_set_mode(tls_->native_handle(), SSL_MODE_RELEASE_BUFFERS);  // idle connections hold none
  tls_->use_certificate_chain_file(options.ssl_certfile, error);
  if (error) fail(ErrorCode::kInvalidArgument, "{}: {}", options.ssl_certfile, error.message());
  tls_->use_private_key_file(options.ssl_keyfile, net::ssl::context::pem, error);
  if (error) fail(ErrorCode::kInvalidArgument, "{}: {}", options.ssl_keyfile, error.message());
}

void Listener::bind_tcp() {
  const HttpServerOptions& options = state_.options;
  const std::string where = fmt::format("{}:{}", options.host, options.port);
  error_code error;
  Tcp::resolver resolver(state_.io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
  if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
  for (const auto& entry : found) {
    const Tcp::endpoint endpoint = entry.endpoint();
    Tcp::acceptor acceptor(state_.io);
    acceptor.open(endpoint.protocol(), error);
    if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
    acceptor.set_option(Tcp::acceptor::reuse_address(true));
    if (endpoint.address().is_v6()) acceptor.set_option(net::ip::v6_only(false));
    if (options.reuse_port)
      acceptor.set_option(net::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>(true));
    acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
    if (error) fail(ErrorCode::kIo, "{}: {}", where, error.message());
    const auto bound = acceptor.local_endpoint();
    const std::string address = bound.address().to_string();
    endpoints_.push_back(fmt::format("{}://{}:{}", tls_ ? "https" : "http",
                                     bound.address().is_v6() ? "[" + address + "]" : address, bound.port()));
    tcp_.push_back(std::move(acceptor));
  }
}

void Listener::bind_local() {
  const std::string& path = state_.options.uds;
  struct stat status {};
  error_code error;
  if (::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    Local::socket probe(state_.io);  // what a process that has ended left behind
    probe.connect(Local::endpoint(path), error);
    if (!error) fail(ErrorCode::kIo, "{}: another process listens there", path);
    ::unlink(path.c_str());
  }
  try {
    local_ = std::make_unique<Local::acceptor>(state_.io, Local::endpoint(path));
  } catch (const boost::system::system_error& failure) {
    fail(ErrorCode::kIo, "{}: {}", path, failure.code().message());
  }
  endpoints_.push_back("unix:" + path);
}

void Listener::start() {
  for (Tcp::acceptor& acceptor : tcp_) net::co_spawn(state_.io, accept_from(acceptor), net::detached);
  if (local_) net::co_spawn(state_.io, accept_from(*local_), net::detached);
}

template <typename Acceptor>
Task Listener::accept_from(Acceptor& acceptor) {
  for (;;) {
    error_code error;
    auto socket = co_await acceptor.async_accept(net::redirect_error(net::use_awaitable, error));
    if (!acceptor.is_open()) co_return;
    if (error) {  // no descriptors are left, as a rule: others will be closed
      net::steady_timer pause(state_.io, kNetworkTick);
      error_code ignored;
      co_await pause.async_wait(net::redirect_error(net::use_awaitable, ignored));
      continue;
    }
    take(std::move(socket));
  }
}

template <typename Socket>
void Listener::take(Socket socket) {
  auto transport = transport_of(std::move(socket), tls_.get());
  ++state_.n_accepted;
  if (state_.n_connections < state_.options.max_connections) {
    std::make_shared<Connection>(state_, std::move(transport))->start();
    return;
  }
  ++state_.n_refused;
  net::co_spawn(state_.io, turn_away(std::move(transport)), net::detached);
}

Task Listener::turn_away(std::unique_ptr<Transport> transport) {
  error_code error;
  const HttpResponse response = state_.handler.protocol_error(503, "too many connections");
  const std::string text = response_text(response, false);
  if (!tls_) co_await transport->write(text, error);  // a handshake is what the machine has no time for
  co_await transport->end_writing(error);
  transport->close();
}

void Listener::close() {
  for (Tcp::acceptor& acceptor : tcp_) close_door(acceptor);
  if (!local_) return;
  close_door(*local_);
  ::unlink(state_.options.uds.c_str());
}

template <typename Acceptor>
void Listener::close_door(Acceptor& acceptor) {
  error_code error;
  acceptor.non_blocking(true, error);
  while (!error) {
    auto socket = acceptor.accept(error);
    if (!error) take(std::move(socket));
  }
  acceptor.close(error);
}

}  // namespace triptych::server
