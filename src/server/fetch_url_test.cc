#include "server/fetch_url.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace triptych::server {
namespace {

TEST(FetchUrl, ReadsHostPortAndTarget) {
  const FetchUrl plain = parse_fetch_url("HTTP://Example.COM./a/b.png?x=1#part");
  EXPECT_FALSE(plain.is_tls);
  EXPECT_EQ(plain.host, "example.com");
  EXPECT_EQ(plain.port, 80);
  EXPECT_EQ(plain.target, "/a/b.png?x=1");
  EXPECT_EQ(plain.authority(), "example.com");
  const FetchUrl tls = parse_fetch_url("https://[2606:4700::1111]:8443?q");
  EXPECT_TRUE(tls.is_tls);
  EXPECT_EQ(tls.host, "2606:4700::1111");
  EXPECT_EQ(tls.target, "/?q");
  EXPECT_EQ(tls.authority(), "[2606:4700::1111]:8443");
  EXPECT_EQ(tls.text(), "https://[2606:4700::1111]:8443/?q");
  EXPECT_EQ(parse_fetch_url("https://a:").port, 443);
  EXPECT_TRUE(is_fetch_url("HtTpS:x"));
  EXPECT_FALSE(is_fetch_url("ftp://a"));
}

// Each of them is another host, or none, to some reader of URLs.
TEST(FetchUrl, RefusesWhatCouldBeReadInTwoWays) {
  for (const char* url : {"http://",
                          "http:///x",
                          "http:/a",
                          "http:a",
                          "ftp://a/",
                          "http://user@a/",
                          "http://a@b:80/",
                          "http://a:0/",
                          "http://a:65536/",
                          "http://a:80x/",
                          "http://a b/",
                          "http://a\\b/",
                          "http://a/\r\nHost: b",
                          "http://a/\t",
                          "http://\xC3\xA9/",
                          "http://a..b/",
                          "http://.a/",
                          "http://-a/",
                          "http://a%2eb/",
                          "http://2130706433/",
                          "http://0x7f.1/",
                          "http://127.1/",
                          "http://1.2.3.4.5/",
                          "http://0177.0.0.1/",
                          "http://1.2.3.04/",
                          "http://0x7f000001/",
                          "http://[::1/",
                          "http://[::1]x/",
                          "http://[fe80::1%25eth0]/",
                          "http://[1.2.3.4]/",
                          "http://a,b/",
                          "http://[::ffff:127.0.0.1/"})
    EXPECT_THROW(parse_fetch_url(url), Error) << url;
  EXPECT_THROW(parse_fetch_url("http://a/" + std::string(9000, 'x')), Error);
  EXPECT_THROW(parse_fetch_url("http://" + std::string(300, 'x') + "/"), Error);
  EXPECT_EQ(parse_fetch_url("http://127.0.0.1/").host, "127.0.0.1")
      << "a matter of its address, not its form";
}

TEST(FetchUrl, FollowsLocations) {
  const FetchUrl base = parse_fetch_url("https://a.test/x/y?z");
  EXPECT_EQ(follow_location(base, "http://b.test/q").text(), "http://b.test/q");
  EXPECT_EQ(follow_location(base, "//b.test").text(), "https://b.test/");
  EXPECT_EQ(follow_location(base, "/p#f").text(), "https://a.test/p");
  EXPECT_EQ(follow_location(base, "p").text(), "https://a.test/x/p");
  EXPECT_EQ(follow_location(base, "?p").text(), "https://a.test/x/y?p");
}

TEST(FetchUrl, RefusesLocationsElsewhere) {
  const FetchUrl base = parse_fetch_url("https://a.test/x");
  for (const char* location :
       {"", "javascript:alert(1)", "file:///etc/passwd", "//user@b/", "ftp://b/", "a b"})
    EXPECT_THROW(follow_location(base, location), Error) << location;
}

TEST(MediaDomains, AreHostsWithTheirPorts) {
  const auto matches = [](std::vector<std::string> domains, const char* url) {
    return matches_media_domains(domains, parse_fetch_url(url));
  };
  EXPECT_TRUE(matches({"example.com"}, "https://EXAMPLE.com/a"));
  EXPECT_TRUE(matches({"Example.com"}, "http://example.com/a"));
  EXPECT_FALSE(matches({"example.com"}, "http://a.example.com/"));
  EXPECT_FALSE(matches({"example.com"}, "http://badexample.com/"));
  EXPECT_FALSE(matches({"example.com"}, "http://example.com:22/"));
  EXPECT_FALSE(matches({"example.com"}, "http://example.com:443/")) << "not the scheme's own";
  EXPECT_TRUE(matches({"example.com:8080"}, "http://example.com:8080/"));
  EXPECT_FALSE(matches({"example.com:8080"}, "http://example.com/"));
  EXPECT_TRUE(matches({"*.example.com"}, "http://a.b.example.com/"));
  EXPECT_FALSE(matches({"*.example.com"}, "http://example.com/"));
  EXPECT_FALSE(matches({"*.example.com"}, "http://aexample.com/"));
  EXPECT_TRUE(matches({"*"}, "https://any.test/"));
  EXPECT_FALSE(matches({"*"}, "https://any.test:22/"));
  EXPECT_TRUE(matches({"*:8080"}, "http://any.test:8080/"));
  EXPECT_TRUE(matches({"a", "[::1]:99"}, "http://[::1]:99/"));
  for (const char* domain : {"", "http://a", "a/b", "*a", "a:b", "*:", "a@b", "*.", "2130706433"})
    EXPECT_THROW(check_media_domain(domain), Error) << domain;
}

}  // namespace
}  // namespace triptych::server
