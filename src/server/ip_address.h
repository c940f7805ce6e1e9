// Addresses of hosts, and which of them a server may ask for what a stranger names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych::server {

struct IpAddress {
  bool is_v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // IPv4: the first four

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

/// "192.0.2.1" or "2001:db8::1". Throws Error(kInvalidArgument).
IpAddress parse_ip_address(const std::string& text);
std::string to_string(const IpAddress& address);

/// Whether it is a single host of the public internet, by the registries of special-purpose addresses of IANA
/// (RFC 6890 and later). Not so: this machine, private networks, shared ones of carriers, link-local (where
/// clouds have their metadata), multicast, documentation, benchmarks, reserved ones; of IPv6 all outside
/// 2000::/3, and what holds an IPv4 address (mapped, 6to4, Teredo, NAT64).
bool is_public_address(const IpAddress& address) noexcept;

/// The addresses of a host, name or address; empty: there are none.
std::vector<IpAddress> resolve_host(const std::string& host);

}  // namespace triptych::server
