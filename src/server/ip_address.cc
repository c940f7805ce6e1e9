#include "server/ip_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace triptych::server {
namespace {

struct Network {
  std::array<std::uint8_t, 6> first;  // further bytes are 0
  int n_bits;
};

constexpr std::array kSpecialV4 = {
    Network{{0}, 8},              // "this network"
    Network{{10}, 8},             // private
    Network{{100, 64}, 10},       // shared by carriers
    Network{{127}, 8},            // this machine
    Network{{169, 254}, 16},      // link-local, metadata of clouds
    Network{{172, 16}, 12},       // private
    Network{{192, 0, 0}, 24},     // protocol assignments
    Network{{192, 0, 2}, 24},     // documentation
    Network{{192, 88, 99}, 24},   // 6to4 relays
    Network{{192, 168}, 16},      // private
    Network{{198, 18}, 15},       // benchmarks
    Network{{198, 51, 100}, 24},  // documentation
    Network{{203, 0, 113}, 24},   // documentation
    Network{{224}, 4},            // multicast
    Network{{240}, 4},            // reserved, broadcast
};

constexpr Network kGlobalV6{{0x20}, 3};
constexpr std::array kSpecialV6 = {
    Network{{0x20, 0x01, 0x00}, 23},        // protocol assignments, Teredo among them
    Network{{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    Network{{0x20, 0x02}, 16},              // 6to4
    Network{{0x3f, 0xff, 0x00}, 20},        // documentation
};

bool is_in(const std::array<std::uint8_t, 16>& address, const Network& network) noexcept {
  for (int bit = 0; bit < network.n_bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const unsigned first = byte < network.first.size() ? network.first[byte] : 0U;
    if (((address[byte] ^ first) >> (7 - bit % 8)) & 1U) return false;
  }
  return true;
}

}  // namespace

IpAddress parse_ip_address(const std::string& text) {
  IpAddress out;
  out.is_v6 = text.find(':') != std::string::npos;
  if (inet_pton(out.is_v6 ? AF_INET6 : AF_INET, text.c_str(), out.bytes.data()) != 1)
    fail(ErrorCode::kInvalidArgument, "\"{}\" is no IP address", text);
  return out;
}

std::string to_string(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.is_v6 ? AF_INET6 : AF_INET, address.bytes.data(), text.data(), text.size());
  return text.data();
}

bool is_public_address(const IpAddress& address) noexcept {
  const auto holds = [&](const Network& network) { return is_in(address.bytes, network); };
  if (!address.is_v6) return std::none_of(kSpecialV4.begin(), kSpecialV4.end(), holds);
  return holds(kGlobalV6) && std::none_of(kSpecialV6.begin(), kSpecialV6.end(), holds);
}

std::vector<IpAddress> resolve_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  std::vector<IpAddress> out;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    IpAddress address;
    if (one->ai_family == AF_INET) {
      sockaddr_in in{};
      std::memcpy(&in, one->ai_addr, sizeof in);
      std::memcpy(address.bytes.data(), &in.sin_addr, 4);
    } else if (one->ai_family == AF_INET6) {
      sockaddr_in6 in{};
      std::memcpy(&in, one->ai_addr, sizeof in);
      address.is_v6 = true;
      std::memcpy(address.bytes.data(), &in.sin6_addr, 16);
    } else {
      continue;
    }
    out.push_back(address);
  }
  return out;
}

}  // namespace triptych::server
