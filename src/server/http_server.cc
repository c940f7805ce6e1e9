// The network thread, and signals. Connections are in connection.h, their answers in outbox.h, where they
// come from in listener.h.
#include "server/http_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/connection.h"
#include "server/listener.h"
#include "server/network_state.h"

namespace triptych::server {
namespace {

using Clock = std::chrono::steady_clock;

int signal_pipe[2] = {-1, -1};  // a handler may do little more than write

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& options, HttpHandler& handler)
      : state(options, handler), listener(state), tick(state.io) {}

  Task watch() {
    for (;;) {
      error_code ignored;
      tick.expires_after(kNetworkTick);
      co_await tick.async_wait(net::redirect_error(net::use_awaitable, ignored));
      const auto now = Clock::now();
      // Dropping a connection only wakes its coroutines: the set does not change under this loop.
      for (Connection* connection : state.connections) connection->tick(now);
    }
  }

  void start() {
    listener.start();
    net::co_spawn(state.io, watch(), net::detached);
    thread = std::thread([this] {
      for (;;) try {
          state.io.run();
          return;
        } catch (const std::exception& failure) {
          log_warning("network: {}", failure.what());
        }
    });
  }

  // Runs it on the network thread and waits for it.
  void on_network(const std::function<void()>& action) {
    std::promise<void> done;
    net::post(state.io, [&] {
      action();
      done.set_value();
    });
    done.get_future().wait();
  }

  void drain(std::chrono::milliseconds limit) {
    on_network([this] {
      listener.close();
      state.draining = true;
    });
    const auto begin = Clock::now();
    // Idle connections may have a request under way: they get a while.
    const auto grace = std::min<std::chrono::milliseconds>(limit, std::chrono::milliseconds(1000));
    while (state.n_connections > 0 && Clock::now() < begin + limit) {
      if (Clock::now() >= begin + grace) on_network([this] { drop_all(true); });
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void drop_all(bool only_idle) {
    for (Connection* connection : state.connections)
      if (!only_idle || connection->is_idle()) connection->drop();
  }

  ~Impl() {
    if (!thread.joinable()) return;
    on_network([this] { drop_all(false); });
    const auto end = Clock::now() + std::chrono::seconds(5);
    while (state.n_connections > 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    state.io.stop();
    thread.join();
  }

  NetworkState state;
  Listener listener;
  net::steady_timer tick;
  std::thread thread;
};

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}
HttpServer::~HttpServer() = default;

void HttpServer::start() { impl_->start(); }
const std::vector<std::string>& HttpServer::endpoints() const noexcept { return impl_->listener.endpoints(); }
void HttpServer::drain(std::chrono::milliseconds limit) { impl_->drain(limit); }

void HttpServer::catch_signals() {
  if (pipe2(signal_pipe, O_CLOEXEC) != 0) fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  struct sigaction action {};
  action.sa_handler = [](int number) {
    const auto byte = static_cast<unsigned char>(number);
    static_cast<void>(!write(signal_pipe[1], &byte, 1));
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int HttpServer::wait_for_signal() {
  unsigned char number = 0;
  while (read(signal_pipe[0], &number, 1) != 1) {
  }
  return number;
}

HttpServerCounts HttpServer::counts() const noexcept {
  const NetworkState& s = impl_->state;
  return {s.n_connections, s.n_accepted, s.n_refused, s.n_slow_readers};
}

}  // namespace triptych::server
