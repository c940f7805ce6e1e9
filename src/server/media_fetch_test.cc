// Fetching from servers on this machine only: names and addresses are the test's own.
#include "server/media_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "server/api_error.h"
#include "server/http_server.h"

namespace triptych::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const std::string kParam = "messages[0].content[0].image_url.url";

// What a host of pictures may do, good and bad.
class PictureHost : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest&) override { return std::nullopt; }
  HttpResponse protocol_error(int status, std::string_view) override { return {status, "", "", {}}; }
  void handle(std::shared_ptr<Exchange> exchange) override {
    ++n_requests;
    const HttpRequest& request = exchange->request();
    const auto redirect = [&](const std::string& to) {
      exchange->respond({302, "text/plain", "elsewhere", {{"Location", to}}});
    };
    const std::string port = std::string(request.header("host")).substr(request.header("host").rfind(':'));
    if (request.path == "/picture") {
      exchange->respond({200, "text/html", "the bytes", {}});
    } else if (request.path == "/head") {
      std::string all;
      for (const auto& [name, value] : request.headers) all += name + "=" + value + "\n";
      exchange->respond({200, "text/plain", all, {}});
    } else if (request.path == "/hops") {
      const int n = std::stoi(request.target.substr(request.target.find('=') + 1));
      redirect(n == 0 ? "/picture" : "?n=" + std::to_string(n - 1));
    } else if (request.path == "/loop") {
      redirect("/loop");
    } else if (request.path == "/inside") {
      redirect("http://inside.test" + port + "/picture");
    } else if (request.path == "/literal") {
      redirect("http://[::ffff:127.0.0.1]" + port + "/picture");
    } else if (request.path == "/other") {
      redirect("http://other.example" + port + "/picture");
    } else if (request.path == "/script") {
      redirect("javascript:alert(1)");
    } else if (request.path == "/gzip") {
      exchange->respond({200, "image/png", "x", {{"Content-Encoding", "gzip"}}});
    } else if (request.path == "/large") {
      exchange->respond({200, "image/png", std::string(5000, 'x'), {}});
    } else if (request.path == "/middle") {
      exchange->respond({200, "image/png", std::string(2000, 'x'), {}});
    } else if (request.path == "/endless") {
      exchange->start_stream({200, "image/png", "", {}});
      for (int i = 0; i < 10; ++i) exchange->send(std::string(1000, 'x'));
      keep(std::move(exchange));
    } else if (request.path == "/never") {
      keep(std::move(exchange));
    } else {
      exchange->respond({404, "text/plain", "", {}});
    }
  }
  std::atomic<int> n_requests{0};

 private:
  void keep(std::shared_ptr<Exchange> exchange) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(exchange));
  }
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> kept_;
};

// As a resolver would; this machine plays the public internet.
std::vector<IpAddress> addresses_of(const std::string& host) {
  const auto of = [](const char* text) { return parse_ip_address(text); };
  if (host == "pictures.test") return {of("127.0.0.1")};
  if (host == "inside.test") return {of("10.0.0.1")};
  if (host == "metadata.test") return {of("169.254.169.254")};
  if (host == "both.test") return {of("127.0.0.1"), of("10.0.0.1")};
  if (host == "mapped.test") return {of("::ffff:127.0.0.1")};
  if (host == "unknown.test") return {};
  return resolve_host(host);
}

HttpServerOptions any_port() {
  HttpServerOptions out;
  out.port = 0;
  return out;
}

class MediaFetch : public testing::Test {
 protected:
  MediaFetch() : server_(any_port(), host_) {
    server_.start();
    const std::string& endpoint = server_.endpoints().front();
    port_ = endpoint.substr(endpoint.rfind(':') + 1);
    rules_.domains = {"*.test:" + port_, "[::1]:" + port_, "[::ffff:127.0.0.1]:" + port_,
                      "127.0.0.1:" + port_, "0.0.0.0:" + port_};
    rules_.max_bytes = 4000;
    rules_.resolve = addresses_of;
    rules_.is_allowed = [](const IpAddress& address) {
      return address == parse_ip_address("127.0.0.1") || is_public_address(address);
    };
  }
  std::string url(const std::string& path, const std::string& host = "pictures.test") const {
    return "http://" + host + ":" + port_ + path;
  }
  std::string fetch(const std::string& from) const {
    const MediaFetcher fetcher(rules_);
    MediaFetcher::Budget budget(fetcher, {});
    return fetcher.fetch(from, kParam, budget);
  }
  void expect_refused(const std::string& from, const std::string& what, int status = 400) const {
    try {
      fetch(from);
      ADD_FAILURE() << from << " was fetched";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), status) << from;
      EXPECT_EQ(error.param(), kParam);
      EXPECT_THAT(error.what(), HasSubstr(what)) << from;
    }
  }

  PictureHost host_;
  HttpServer server_;
  std::string port_;
  FetchRules rules_;
};

TEST_F(MediaFetch, FetchesWhateverTheTypeSays) {
  EXPECT_EQ(fetch(url("/picture")), "the bytes");
  const std::string head = fetch(url("/head"));
  EXPECT_THAT(head, HasSubstr("host=pictures.test:" + port_));
  EXPECT_THAT(head, HasSubstr("accept-encoding=identity"));
}

TEST_F(MediaFetch, ConnectsToNoAddressThatIsNotPublic) {
  for (const char* host :
       {"inside.test", "metadata.test", "both.test", "mapped.test", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"})
    expect_refused(url("/picture", host), "from there");
  rules_.is_allowed = is_public_address;
  for (const char* host : {"pictures.test", "127.0.0.1"}) expect_refused(url("/picture", host), "from there");
  EXPECT_EQ(host_.n_requests, 0);
}

TEST_F(MediaFetch, LooksAtEachHopOfARedirect) {
  EXPECT_EQ(fetch(url("/hops?n=2")), "the bytes");
  expect_refused(url("/hops?n=3"), "more than 3 redirects");
  expect_refused(url("/loop"), "more than 3 redirects");
  const int before = host_.n_requests;
  expect_refused(url("/inside"), "from there");
  expect_refused(url("/literal"), "from there");
  expect_refused(url("/other"), "from there");
  expect_refused(url("/script"), "neither http nor https");
  EXPECT_EQ(host_.n_requests, before + 4) << "one request each, none behind the redirect";
}

// The name is resolved once a hop: a second answer of the resolver is never connected to.
TEST_F(MediaFetch, ConnectsToTheAddressThatWasLookedAt) {
  auto n = std::make_shared<std::atomic<int>>(0);
  rules_.resolve = [n](const std::string&) {
    return std::vector{parse_ip_address((*n)++ == 0 ? "127.0.0.1" : "10.0.0.1")};
  };
  EXPECT_EQ(fetch(url("/picture")), "the bytes");
  EXPECT_EQ(*n, 1);
}

TEST_F(MediaFetch, LimitsBytesAndTime) {
  expect_refused(url("/large"), "may have 4000 bytes", 413);
  expect_refused(url("/endless"), "may have 4000 bytes", 413);
  expect_refused(url("/gzip"), "compressed");
  expect_refused(url("/absent"), "answers 404");
  rules_.timeout = milliseconds(50);
  expect_refused(url("/never"), "in time");
}

// Of a request, and of all that are under way.
TEST_F(MediaFetch, CountsBytesOfSeveralPictures) {
  rules_.max_all_bytes = 3000;
  const MediaFetcher fetcher(rules_);
  const auto status_of = [&](MediaFetcher::Budget& budget) {
    try {
      fetcher.fetch(url("/middle"), kParam, budget);
      return 200;
    } catch (const ApiError& error) {
      return error.status();
    }
  };
  {
    MediaFetcher::Budget first(fetcher, {}), second(fetcher, {});
    EXPECT_EQ(status_of(first), 200);
    EXPECT_EQ(status_of(second), 503) << "2 x 2000 bytes";
  }
  MediaFetcher::Budget third(fetcher, {});
  EXPECT_EQ(status_of(third), 200) << "the others gave theirs back";
}

TEST_F(MediaFetch, EndsWhenNobodyWaits) {
  const MediaFetcher fetcher(rules_);
  MediaFetcher::Budget budget(fetcher, [] { return true; });
  try {
    fetcher.fetch(url("/never"), kParam, budget);
    ADD_FAILURE() << "it was fetched";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 499);
  }
}

TEST_F(MediaFetch, SaysWhatDoesNotAnswer) {
  expect_refused(url("/picture", "unknown.test"), "not known");
  rules_.domains = {"pictures.test:1"};
  expect_refused("http://pictures.test:1/", "does not answer");
  expect_refused(url("/picture", "user@pictures.test"), "user name");
  EXPECT_THROW(MediaFetcher({.domains = {"http://a"}}), Error);
  EXPECT_THROW(MediaFetcher({.domains = {"a"}, .ca_file = "/dev/null"}), Error);
}

// A certificate of its own for pictures.test.
void write_certificate(const std::string& certificate, const std::string& key_file) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x(X509_new(), X509_free);
  X509_set_version(x.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), 3600);
  X509_set_pubkey(x.get(), key.get());
  X509_NAME* name = X509_get_subject_name(x.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1,
                             0);
  X509_set_issuer_name(x.get(), name);
  const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> alt(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:pictures.test"), X509_EXTENSION_free);
  X509_add_ext(x.get(), alt.get(), -1);
  X509_sign(x.get(), key.get(), EVP_sha256());
  const auto write = [](const std::string& path, auto action) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr) << path;
    action(file);
    std::fclose(file);
  };
  write(certificate, [&](std::FILE* file) { PEM_write_X509(file, x.get()); });
  write(key_file, [&](std::FILE* file) {
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

TEST_F(MediaFetch, TrustsTlsOnlyOfTheHostAndOfWhoIsTrusted) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "media_fetch_tls";
  std::filesystem::create_directories(folder);
  const std::string certificate = folder / "certificate.pem", key = folder / "key.pem";
  write_certificate(certificate, key);
  PictureHost host;
  HttpServerOptions options = any_port();
  options.ssl_certfile = certificate;
  options.ssl_keyfile = key;
  HttpServer tls(options, host);
  tls.start();
  const std::string port = tls.endpoints().front().substr(tls.endpoints().front().rfind(':') + 1);
  rules_.domains = {"*.test:" + port, "127.0.0.1:" + port};
  expect_refused("https://pictures.test:" + port + "/picture", "not trusted");
  rules_.ca_file = certificate;
  EXPECT_EQ(fetch("https://pictures.test:" + port + "/picture"), "the bytes");
  rules_.resolve = [](const std::string&) { return std::vector{parse_ip_address("127.0.0.1")}; };
  expect_refused("https://other.test:" + port + "/picture", "not trusted");
  expect_refused("https://127.0.0.1:" + port + "/picture", "not trusted");
  EXPECT_EQ(host.n_requests, 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace triptych::server
