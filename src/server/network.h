// Boost.Asio, under short names; for the files that do the network, no others: it is dear to compile.
#pragma once

#include <chrono>
#include <utility>  // which Boost 1.74 forgets

// Boost 1.74 asks clang for <experimental/coroutine>, which libstdc++ has not; the standard's own header
// does.
#if defined(__clang__) && !defined(BOOST_ASIO_HAS_CO_AWAIT)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#endif
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace triptych::server {

namespace net = boost::asio;
using boost::system::error_code;
using Tcp = net::ip::tcp;
using Local = net::local::stream_protocol;
using Task = net::awaitable<void>;

// Sleepers wake and time-outs are looked for this often.
inline constexpr std::chrono::milliseconds kNetworkTick{100};

// A condition that coroutines of one thread wait for. Whoever waits has looked at what it waits for since the
// last suspension, so that no notice is lost.
class Notice {
 public:
  explicit Notice(net::io_context& io) : timer_(io, std::chrono::steady_clock::time_point::max()) {}
  Task wait() {
    error_code ignored;
    co_await timer_.async_wait(net::redirect_error(net::use_awaitable, ignored));
  }
  void notify() { timer_.cancel(); }

 private:
  net::steady_timer timer_;
};

}  // namespace triptych::server
