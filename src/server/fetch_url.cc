#include "server/fetch_url.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace triptych::server {
namespace {

constexpr std::size_t kMaxUrl_bytes = 8192;
constexpr std::size_t kMaxHost_bytes = 253;  // of a name in the DNS

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return lowered(text.substr(0, beginning.size())) == beginning;
}

[[noreturn]] void refuse(std::string_view why) { fail(ErrorCode::kInvalidArgument, "the URL {}", why); }

void check_bytes(std::string_view url) {
  if (url.size() > kMaxUrl_bytes) refuse(fmt::format("is longer than {} bytes", kMaxUrl_bytes));
  for (const char c : url)
    if (c <= ' ' || c > '~' || c == '\\' || c == '"' || c == '<' || c == '>' || c == '^' || c == '`' ||
        c == '{' || c == '|' || c == '}')
      refuse("has characters that have to be %-escaped");
}

// "80"; nothing else.
std::optional<std::uint16_t> port_of(std::string_view text) {
  unsigned value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 1 || value > 65535) return std::nullopt;
  return static_cast<std::uint16_t>(value);
}

bool is_ipv4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;  // four decimals, no more forms
}

// As WHATWG's URL standard: the last label is decimal or hexadecimal, and old libraries read an address.
bool ends_in_number(std::string_view host) {
  const std::string_view last =
      host.substr(host.rfind('.') == std::string_view::npos ? 0 : host.rfind('.') + 1);
  if (!last.empty() && std::all_of(last.begin(), last.end(), is_digit)) return true;
  return last.size() >= 2 && last[0] == '0' && last[1] == 'x';
}

void check_name(const std::string& host) {
  if (host.empty()) refuse("names no host");
  if (host.size() > kMaxHost_bytes) refuse("has a host name that is too long");
  for (const char c : host)
    if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-' && c != '.' && c != '_')
      refuse("has a host name with characters that names have not");
  if (host.front() == '.' || host.front() == '-' || host.find("..") != std::string::npos)
    refuse("has a host name with an empty label");
  if (ends_in_number(host) && !is_ipv4(host))
    refuse("has a host that is neither a name nor an address such as 192.0.2.1");
}

// "host", "host:port", "[address]:port".
void read_authority(std::string_view text, FetchUrl& out) {
  if (text.find('@') != std::string_view::npos) refuse("holds a user name");
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse("has a broken IPv6 address");
    out.host = lowered(text.substr(1, end - 1));
    out.is_ipv6 = true;
    in6_addr address{};
    if (inet_pton(AF_INET6, out.host.c_str(), &address) != 1) refuse("has a broken IPv6 address");
    text.remove_prefix(end + 1);
    has_port = !text.empty();
    if (has_port && text.front() != ':') refuse("has a broken IPv6 address");
    if (has_port) port = text.substr(1);
  } else {
    const std::size_t colon = text.find(':');
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
    out.host = lowered(text.substr(0, colon));
    if (!out.host.empty() && out.host.back() == '.') out.host.pop_back();  // the same name
    check_name(out.host);
  }
  out.port = out.is_tls ? 443 : 80;
  if (has_port && !port.empty()) {
    const auto number = port_of(port);
    if (!number) refuse("has no port of 1 to 65535");
    out.port = *number;
  }
}

}  // namespace

std::string FetchUrl::authority() const {
  std::string out = is_ipv6 ? "[" + host + "]" : host;
  if (!has_default_port()) out += ":" + std::to_string(port);
  return out;
}

std::string FetchUrl::text() const { return (is_tls ? "https://" : "http://") + authority() + target; }

bool is_fetch_url(std::string_view url) noexcept {
  constexpr std::array<std::string_view, 2> kSchemes = {"http:", "https:"};
  return std::any_of(kSchemes.begin(), kSchemes.end(), [url](std::string_view scheme) {
    return url.size() >= scheme.size() && std::equal(scheme.begin(), scheme.end(), url.begin(),
                                                     [](char a, char b) { return a == lower(b); });
  });
}

FetchUrl parse_fetch_url(std::string_view url) {
  check_bytes(url);
  FetchUrl out;
  if (starts_with(url, "https://")) {
    out.is_tls = true;
    url.remove_prefix(8);
  } else if (starts_with(url, "http://")) {
    url.remove_prefix(7);
  } else {
    refuse("is neither http://HOST/... nor https://HOST/...");
  }
  url = url.substr(0, url.find('#'));
  const std::size_t end = std::min(url.find_first_of("/?"), url.size());
  read_authority(url.substr(0, end), out);
  out.target = std::string(url.substr(end));
  if (out.target.empty() || out.target.front() == '?') out.target.insert(0, "/");
  return out;
}

FetchUrl follow_location(const FetchUrl& base, std::string_view location) {
  check_bytes(location);
  if (location.empty()) refuse("of a redirect is empty");
  if (is_fetch_url(location)) return parse_fetch_url(location);
  if (location.substr(0, 2) == "//")
    return parse_fetch_url((base.is_tls ? "https:" : "http:") + std::string(location));
  // "javascript:...": a scheme ends before the path begins.
  const std::size_t colon = location.find(':');
  if (colon != std::string_view::npos && colon < std::min(location.find_first_of("/?#"), location.size()))
    refuse("of a redirect is neither http nor https");
  location = location.substr(0, location.find('#'));
  FetchUrl out = base;
  const std::string path = base.target.substr(0, base.target.find('?'));
  if (location.empty()) return out;
  if (location.front() == '/') {
    out.target = std::string(location);
  } else if (location.front() == '?') {
    out.target = path + std::string(location);
  } else {
    out.target = path.substr(0, path.rfind('/') + 1) + std::string(location);
  }
  if (out.target.size() > kMaxUrl_bytes) refuse(fmt::format("is longer than {} bytes", kMaxUrl_bytes));
  return out;
}

namespace {

struct Domain {
  std::string host;  // empty: any
  bool is_below = false;
  std::uint16_t port = 0;  // 0: the scheme's own
};

Domain parse_domain(std::string_view text) {
  Domain out;
  FetchUrl url;
  if (text.substr(0, 2) == "*.") {
    out.is_below = true;
    text.remove_prefix(2);
  } else if (text == "*" || text.substr(0, 2) == "*:") {
    if (text.size() > 1) {
      const auto port = port_of(text.substr(2));
      if (!port) refuse("has no port of 1 to 65535");
      out.port = *port;
    }
    return out;
  }
  read_authority(text, url);
  out.host = url.host;
  const std::size_t colon = text.rfind(':');
  const std::size_t bracket = text.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket))
    out.port = url.port;
  return out;
}

}  // namespace

void check_media_domain(std::string_view domain) {
  try {
    static_cast<void>(parse_domain(domain));
  } catch (const Error&) {
    fail(ErrorCode::kInvalidArgument,
         "\"{}\": expected a host such as example.com, *.example.com or *, and :PORT behind it for another "
         "port than 80 and 443",
         domain);
  }
}

bool matches_media_domains(std::span<const std::string> domains, const FetchUrl& url) {
  return std::any_of(domains.begin(), domains.end(), [&](const std::string& text) {
    const Domain domain = parse_domain(text);
    if (domain.port == 0 ? !url.has_default_port() : domain.port != url.port) return false;
    if (domain.host.empty()) return true;
    if (!domain.is_below) return url.host == domain.host;
    const std::string ending = "." + domain.host;
    return url.host.size() > ending.size() &&
           url.host.compare(url.host.size() - ending.size(), ending.size(), ending) == 0;
  });
}

}  // namespace triptych::server
