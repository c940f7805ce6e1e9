// Pictures on other hosts, from the request to the answer; the host is this test.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "server/http_server.h"
#include "server/service.h"
#include "support/source_dir.h"

namespace triptych::server {
namespace {

using testing::HasSubstr;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// For a data URL without base64.
std::string percent_encoded(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return out;
}

class PictureHost : public HttpHandler {
 public:
  explicit PictureHost(std::string picture) : picture_(std::move(picture)) {}
  std::optional<HttpResponse> refuse(const HttpRequest&) override { return std::nullopt; }
  HttpResponse protocol_error(int status, std::string_view) override { return {status, "", "", {}}; }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const bool is_page = exchange->request().path == "/page";
    exchange->respond({200, "image/png", is_page ? "<html>" : picture_, {}});
  }

 private:
  const std::string picture_;
};

class WaitingExchange : public Exchange {
 public:
  WaitingExchange(const std::string& path, std::string body)
      : request_{"POST", path, path, {{"content-type", "application/json"}}, std::move(body)} {}
  const HttpRequest& request() const noexcept override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    ready_.notify_one();
  }
  void start_stream(const HttpResponse&) override {}
  bool send(std::string_view) override { return true; }
  void end_stream() override {}
  bool is_open() const noexcept override { return true; }
  void on_disconnect(std::function<void()>) override {}
  HttpResponse wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return response_.has_value(); });
    return *response_;
  }

 private:
  HttpRequest request_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<HttpResponse> response_;
};

TEST(ServiceMedia, AnswersAboutAPictureOfAnotherHost) {
  const std::string picture = read_file(test::source_path("assets/eval/scenes/0000.png"));
  PictureHost pictures(picture);
  HttpServerOptions any_port;
  any_port.port = 0;
  HttpServer host(any_port, pictures);
  host.start();
  const std::string port = host.endpoints().front().substr(host.endpoints().front().rfind(':'));
  ServiceOptions options;
  options.fetch.domains = {"pictures.test" + port};
  options.fetch.resolve = [](const std::string&) { return std::vector{parse_ip_address("127.0.0.1")}; };
  options.fetch.is_allowed = [](const IpAddress&) { return true; };
  Service service(std::move(options));
  service.set_model(std::make_unique<ModelHost>(
      LoadedModel::open(test::source_path("assets/models/scenes-llava"), {.n_threads = 1}),
      EngineOptions{.metrics = &service.metrics_registry()}, std::vector<std::string>{"m"}));

  const auto ask = [&](const std::string& path, const Json& picture_part) {
    const Json body = {
        {"max_tokens", 6},
        {"temperature", 0},
        {"messages",
         {{{"role", "user"},
           {"content", {picture_part, {{"type", "text"}, {"text", "Describe the image."}}}}}}}};
    const auto exchange = std::make_shared<WaitingExchange>(path, body.dump());
    service.handle(exchange);
    return exchange->wait();
  };
  const auto chat = [&](const std::string& url) {
    return ask("/v1/chat/completions", {{"type", "image_url"}, {"image_url", {{"url", url}}}});
  };
  const HttpResponse inline_answer = chat("data:image/png," + percent_encoded(picture));
  ASSERT_EQ(inline_answer.status, 200) << inline_answer.body;
  const Json message = Json::parse(inline_answer.body)["choices"][0]["message"];
  const HttpResponse fetched = chat("http://pictures.test" + port + "/a.png");
  ASSERT_EQ(fetched.status, 200) << fetched.body;
  EXPECT_EQ(Json::parse(fetched.body)["choices"][0]["message"], message);
  const HttpResponse other_form = ask(
      "/v1/messages",
      {{"type", "image"}, {"source", {{"type", "url"}, {"url", "http://pictures.test" + port + "/b.png"}}}});
  ASSERT_EQ(other_form.status, 200) << other_form.body;
  EXPECT_EQ(Json::parse(other_form.body)["content"][0]["text"], message["content"]);

  const HttpResponse page = chat("http://pictures.test" + port + "/page");
  EXPECT_GE(page.status, 400);
  EXPECT_EQ(Json::parse(page.body)["error"]["param"], "messages[0].content[0].image_url.url");
  const HttpResponse elsewhere = chat("http://elsewhere.test" + port + "/a.png");
  EXPECT_EQ(elsewhere.status, 400);
  EXPECT_THAT(elsewhere.body, HasSubstr("url_not_allowed"));
  const auto count = std::make_shared<WaitingExchange>(
      "/tokenize", R"({"messages":[{"role":"user","content":[)"
                   R"({"type":"image_url","image_url":{"url":"http://pictures.test)" +
                       port + R"(/c.png"}}]}]})");
  service.handle(count);
  EXPECT_EQ(count->wait().status, 200);
}

}  // namespace
}  // namespace triptych::server
