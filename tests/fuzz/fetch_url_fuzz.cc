// URLs of pictures and where redirects lead: what is read is written so that it is read the same way again,
// and names one host.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "only_errors.h"
#include "server/fetch_url.h"

namespace {

void check(const triptych::server::FetchUrl& url) {
  using namespace triptych;
  fuzz::require(!url.host.empty() && url.port > 0 && !url.target.empty() && url.target.front() == '/',
                "host, port and target are there");
  fuzz::require(url.host.find_first_of("@/\\ \r\n?#") == std::string::npos, "a host is a host");
  fuzz::require(url.target.find_first_of(" \r\n#") == std::string::npos, "a target fits a request line");
  const server::FetchUrl again = server::parse_fetch_url(url.text().substr(0, 8192));
  fuzz::require(url.text().size() > 8192 || (again.host == url.host && again.port == url.port &&
                                             again.is_tls == url.is_tls && again.target == url.target),
                "it is read the same way again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t line = text.find('\n');
  return fuzz::only_errors([&] {
    const server::FetchUrl url = server::parse_fetch_url(text.substr(0, line));
    check(url);
    static_cast<void>(
        server::matches_media_domains(std::vector<std::string>{"*.example.com", "a:8080"}, url));
    if (line != std::string_view::npos) check(server::follow_location(url, text.substr(line + 1)));
  });
}
