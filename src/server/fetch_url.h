// Addresses of pictures on other hosts: http and https URLs (RFC 3986), read strictly. What two readers could
// take for different hosts is refused, not guessed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace triptych::server {

struct FetchUrl {
  bool is_tls = false;
  std::string host;  // lower case; an IPv6 address without brackets
  bool is_ipv6 = false;
  std::uint16_t port = 0;  // the scheme's own when none is given
  std::string target;      // path and query, "/" at least; no fragment

  bool has_default_port() const noexcept { return port == (is_tls ? 443 : 80); }
  /// As in the header Host: brackets around IPv6, a port unless it is the scheme's own.
  std::string authority() const;
  std::string text() const;
};

/// Whether it begins "http:" or "https:", in any case of letters.
bool is_fetch_url(std::string_view url) noexcept;

/// Throws Error(kInvalidArgument) that says what is wrong: user names and passwords, hosts that end in a
/// number and are no dotted IPv4 address (2130706433, 0x7f.1), zones, controls, spaces, backslashes, bytes
/// above 127, ports out of 1 to 65535, more than 8192 bytes.
FetchUrl parse_fetch_url(std::string_view url);

/// Where a Location header leads from `base` (RFC 3986, 5.2, without removing dots). Throws as above.
FetchUrl follow_location(const FetchUrl& base, std::string_view location);

/// Hosts that pictures may come from: "example.com", "*.example.com" (hosts below it), "*" (any), each with
/// ":PORT" behind it for another than 80 and 443. Throws Error(kInvalidArgument) for what is none.
void check_media_domain(std::string_view domain);
bool matches_media_domains(std::span<const std::string> domains, const FetchUrl& url);

}  // namespace triptych::server
