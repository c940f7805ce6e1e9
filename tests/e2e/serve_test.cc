// `triptych serve` over real sockets, with the model that ships.
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <sstream>
#include <thread>

#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kScene = kSource / "assets/eval/scenes/0000.png";
constexpr const char* kAnswer =
    "a small purple circle at the top left, a small orange square at the top right, a small yellow square at "
    "the left and a small blue triangle at the bottom";

json chat_about(const std::string& picture, const std::string& text = "Describe the image.") {
  return {{"model", "scenes-llava"},
          {"messages",
           {{{"role", "user"},
             {"content",
              {{{"type", "image_url"}, {"image_url", {{"url", picture}}}},
               {{"type", "text"}, {"text", text}}}}}}},
          {"temperature", 0}};
}

// One server for the tests that leave it as it was.
ServerProcess& server() {
  static ServerProcess one({"--max-num-seqs", "4", "--max-body-mib", "1"});
  return one;
}

// Whatever came before, this is answered, and always the same.
void expect_good() {
  const HttpReply reply = server().post("/v1/chat/completions", chat_about(data_url_of(kScene)));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], kAnswer);
}

void expect_error(const HttpReply& reply, int status, const std::string& param, const std::string& part) {
  EXPECT_EQ(reply.status, status) << reply.body;
  const json error = reply.json()["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  EXPECT_EQ(error["param"], param.empty() ? json() : json(param));
  EXPECT_TRUE(error["type"].is_string());
}

TEST(Serve, AnswersAboutAPicture) {
  const HttpReply reply = server().post("/v1/chat/completions", chat_about(data_url_of(kScene)));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json answer = reply.json();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], kAnswer);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const json usage = answer["usage"];
  EXPECT_EQ(usage["total_tokens"].get<int>(),
            usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
  EXPECT_GT(usage["prompt_tokens_details"]["image_tokens"].get<int>(), 0);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(Serve, StreamsTheSameAnswer) {
  json body = chat_about(data_url_of(kScene));
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const HttpReply reply = server().post("/v1/chat/completions", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_TRUE(reply.was_chunked);
  EXPECT_THAT(reply.header("content-type"), HasSubstr("text/event-stream"));
  EXPECT_THAT(reply.body, testing::EndsWith("data: [DONE]\n\n"));
  std::string text;
  const auto events = reply.events();
  ASSERT_GT(events.size(), 10u);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  for (const json& event : events)
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, kAnswer);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_GT(events.back()["usage"]["completion_tokens"].get<int>(), 0);
}

TEST(Serve, SaysWhichFieldIsWrong) {
  const json good = chat_about(data_url_of(kScene));
  const auto with = [&](const std::string& pointer, const json& value) {
    json body = good;
    body[json::json_pointer(pointer)] = value;
    return server().post("/v1/chat/completions", body);
  };
  const char* url = "/messages/0/content/0/image_url/url";
  const std::string param = "messages[0].content[0].image_url.url";
  expect_error(with("/model", "gpt-4"), 404, "model", "gpt-4");
  expect_error(with("/temperature", "hot"), 400, "temperature", "expected a number");
  expect_error(with("/messages", json::array()), 400, "messages", "1 to");
  expect_error(with("/messages/0/role", 3), 400, "messages[0].role", "a string");
  expect_error(with("/messages/0/content/1", {{"type", "text"}}), 400, "messages[0].content[1].text",
               "missing");
  expect_error(with("/messages/0/content/1/type", "smell"), 400, "messages[0].content[1].type", "smell");
  expect_error(with(url, "data:image/png;base64,####"), 400, param, "base64");
  expect_error(with(url, "data:image/png;base64,AAAA"), 400, param, "not an image");
  expect_error(with(url, "data:text/html;base64,AAAA"), 415, param, "text/html");
  expect_error(with(url, "http://127.0.0.1/x.png"), 400, param, "data URL");
  expect_error(with(url, "file:///etc/passwd"), 400, param, "data URL");
  expect_error(with("/max_tokens", 0), 400, "max_tokens", "an integer in [1,");
  expect_error(with("/top_logprobs", 2), 400, "top_logprobs", "logprobs");
  expect_error(with("/response_format", {{"type", "xml"}}), 400, "response_format.type", "xml");
  expect_error(with("/tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}), 400, "tools",
               "chat template");
  expect_good();
}

TEST(Serve, SaysWhatStagesTookAndKeepsAShareOfAPicture) {
  json body = chat_about(data_url_of(kScene));
  const json whole = server().post("/v1/chat/completions", body).json();
  for (const char* stage :
       {"queue_ms", "image_decode_ms", "preprocess_ms", "encode_ms", "prefill_ms", "decode_ms"})
    EXPECT_GE(whole["timings"][stage].get<double>(), 0) << stage;
  EXPECT_GT(whole["timings"]["prefill_ms"], 0);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  EXPECT_THAT(server().post("/v1/chat/completions", body).body, HasSubstr("\"timings\":{\"queue_ms\":"));
  body.erase("stream");
  body.erase("stream_options");
  // A sixty-fourth of 64 tokens: too little to answer as with all of them.
  body["image_tokens_keep"] = 1.0 / 64;
  const HttpReply kept = server().post("/v1/chat/completions", body);
  ASSERT_EQ(kept.status, 200) << kept.body;
  EXPECT_NE(kept.json()["choices"][0]["message"]["content"], kAnswer);
  body["image_tokens_keep"] = 0;
  expect_error(server().post("/v1/chat/completions", body), 400, "image_tokens_keep", "a number in");
  body["image_tokens_keep"] = 0.5;
  body["image_tokens_selection"] = "luck";
  expect_error(server().post("/v1/chat/completions", body), 400, "image_tokens_selection", "luck");
  expect_good();
}

TEST(Serve, ShowsThePageWithAllItAsksFor) {
  const HttpReply page = server().get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.header("content-type"), HasSubstr("text/html"));
  EXPECT_THAT(page.header("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(page.body, Not(HasSubstr("http://")));
  EXPECT_THAT(page.body, Not(HasSubstr("https://")));
  for (const char* file : {"page.css", "page.js", "icon.svg"}) {
    EXPECT_THAT(page.body, HasSubstr(std::string("\"") + file + "\""));
    EXPECT_EQ(server().get(std::string("/") + file).status, 200) << file;
  }
  EXPECT_EQ(server().get("/events.js").status, 200);
  EXPECT_EQ(server().get("/absent.js").status, 404);
}

TEST(Serve, SurvivesBrokenBodiesAndHttp) {
  const auto post = [](const std::string& body,
                       const std::string& headers = "Content-Type: application/json\r\n") {
    return server().ask(http_request("POST", "/v1/chat/completions", body, headers));
  };
  expect_error(post("{"), 400, "", "JSON");
  expect_error(post("[]"), 400, "", "an object");
  expect_error(post(std::string(2000, '[')), 400, "", "deeper");
  expect_error(post("{}", "Content-Type: text/plain\r\n"), 415, "", "application/json");
  expect_error(post(std::string(2 << 20, ' ')), 413, "", "at most");
  expect_error(server().get("/v1/nothing"), 404, "", "/v1/nothing");
  expect_error(server().get("/v1/completions"), 405, "", "POST");
  expect_error(server().ask("nonsense\r\n\r\n"), 400, "", "");
  expect_error(server().ask("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n"), 431,
               "", "head");
  expect_error(
      server().ask("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
      400, "", "");
  expect_error(server().ask("GET /live HTTP/1.1\r\n\r\n"), 400, "", "Host");
  expect_good();
}

TEST(Serve, KeepsConnectionsAndPipelines) {
  HttpConnection connection(server().port());
  const std::string models = http_request("GET", "/v1/models");
  connection.send(
      models + http_request("POST", "/v1/chat/completions", chat_about(data_url_of(kScene)).dump()) + models);
  EXPECT_EQ(connection.read_reply().json()["data"][0]["object"], "model");
  EXPECT_EQ(connection.read_reply().json()["choices"][0]["message"]["content"], kAnswer);
  EXPECT_EQ(connection.read_reply().status, 200);
  connection.send(http_request("GET", "/version", "", "Connection: close\r\n"));
  EXPECT_EQ(connection.read_reply().header("connection"), "close");
  EXPECT_TRUE(connection.is_closed());
}

TEST(Serve, TakesChunkedBodies) {
  HttpConnection connection(server().port());
  const std::string body = chat_about(data_url_of(kScene)).dump();
  connection.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: "
      "100-continue\r\n\r\n");
  ASSERT_TRUE(connection.read_until("100 Continue"));
  char size[32];
  for (std::size_t at = 0; at < body.size(); at += 1000) {
    const std::string part = body.substr(at, 1000);
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    connection.send(size + part + "\r\n");
  }
  connection.send("0\r\n\r\n");
  EXPECT_EQ(connection.read_reply().json()["choices"][0]["message"]["content"], kAnswer);
}

TEST(Serve, CancelsWhatNobodyWaitsFor) {
  const double before = server().metric("triptych_generation_tokens_total");
  json body = chat_about(data_url_of(kScene));
  body["stream"] = true;
  body["ignore_eos"] = true;
  {
    HttpConnection connection(server().port());
    connection.send(http_request("POST", "/v1/chat/completions", body.dump()));
    ASSERT_TRUE(connection.read_until("\"delta\""));
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (server().metric("triptych_num_requests_running") > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server().metric("triptych_num_requests_running"), 0);
  EXPECT_LT(server().metric("triptych_generation_tokens_total") - before, 1000);
  EXPECT_THAT(server().get("/metrics").body,
              HasSubstr("triptych_request_success_total{finished_reason=\"cancelled\"}"));
  expect_good();
}

TEST(Serve, GivesSeveralAnswersLogprobsAndStops) {
  json body = chat_about(data_url_of(kScene));
  body["n"] = 3;
  body["temperature"] = 1;
  body["seed"] = 7;
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  body["max_tokens"] = 5;
  const json first = server().post("/v1/chat/completions", body).json();
  ASSERT_EQ(first["choices"].size(), 3u) << first;
  for (const json& choice : first["choices"]) {
    EXPECT_EQ(choice["logprobs"]["content"].size(), 5u);
    EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  // The same again, but for last bits of the log probabilities: those depend on who else is in a step.
  const json again = server().post("/v1/chat/completions", body).json();
  ASSERT_EQ(again["choices"].size(), 3u) << again;
  for (std::size_t i = 0; i < 3; ++i) {
    const json &one = first["choices"][i], &other = again["choices"][i];
    EXPECT_EQ(other["message"], one["message"]);
    for (std::size_t k = 0; k < 5; ++k)
      EXPECT_NEAR(other["logprobs"]["content"][k]["logprob"].get<double>(),
                  one["logprobs"]["content"][k]["logprob"].get<double>(), 1e-5);
  }
  body = chat_about(data_url_of(kScene));
  body["stop"] = "circle";
  const json stopped = server().post("/v1/chat/completions", body).json();
  EXPECT_EQ(stopped["choices"][0]["message"]["content"], "a small purple ");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], "circle");
}

TEST(Serve, HoldsAnswersToASchema) {
  json body = chat_about(data_url_of(kScene));
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema",
                              {{"name", "shape"},
                               {"schema",
                                {{"type", "object"},
                                 {"properties", {{"colour", {{"enum", {"purple", "red"}}}}}},
                                 {"required", {"colour"}},
                                 {"additionalProperties", false}}}}}};
  const json answer = server().post("/v1/chat/completions", body).json();
  const json content = json::parse(answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(content["colour"] == "purple" || content["colour"] == "red");
  body["response_format"]["json_schema"]["schema"] = {{"type", "nonsense"}};
  EXPECT_EQ(server().post("/v1/chat/completions", body).status, 400);
  body.erase("response_format");
  body["guided_choice"] = {"yes", "no"};
  const std::string word =
      server().post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"];
  EXPECT_TRUE(word == "yes" || word == "no") << word;
}

TEST(Serve, CompletesAndTokenizes) {
  const json body = {{"model", "scenes-llava"},
                     {"prompt", {"USER: Hello ASSISTANT:", "USER: Hi ASSISTANT:"}},
                     {"max_tokens", 4},
                     {"temperature", 0},
                     {"echo", true}};
  const json answer = server().post("/v1/completions", body).json();
  ASSERT_EQ(answer["choices"].size(), 2u) << answer;
  EXPECT_THAT(answer["choices"][1]["text"].get<std::string>(), testing::StartsWith("USER: Hi ASSISTANT:"));
  EXPECT_EQ(answer["object"], "text_completion");
  const json tokens = server().post("/tokenize", {{"prompt", "a small circle"}}).json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  json ids = tokens["tokens"];
  const json text = server().post("/detokenize", {{"tokens", ids}}).json();
  EXPECT_THAT(text["prompt"].get<std::string>(), HasSubstr("a small circle"));
  EXPECT_EQ(server().post("/detokenize", {{"tokens", {1 << 30}}}).status, 400);
  // What a chat will cost, its picture included.
  const json counted = server().post("/tokenize", chat_about(data_url_of(kScene))).json();
  const json asked = server().post("/v1/chat/completions", chat_about(data_url_of(kScene))).json();
  EXPECT_EQ(counted["count"], asked["usage"]["prompt_tokens"]);
}

// The answer of a stream of events that have names.
std::string joined(const HttpReply& reply, const std::string& type, const json::json_pointer& text) {
  std::string out;
  for (const json& event : reply.events())
    if (event["type"] == type) out += event[text].get<std::string>();
  return out;
}

TEST(Serve, AnswersResponses) {
  json body = {{"model", "scenes-llava"},
               {"temperature", 0},
               {"input",
                {{{"role", "user"},
                  {"content",
                   {{{"type", "input_image"}, {"image_url", data_url_of(kScene)}},
                    {{"type", "input_text"}, {"text", "Describe the image."}}}}}}}};
  const json answer = server().post("/v1/responses", body).json();
  EXPECT_EQ(answer["status"], "completed") << answer;
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], kAnswer);
  EXPECT_GT(answer["usage"]["input_tokens_details"]["image_tokens"].get<int>(), 0);
  body["stream"] = true;
  const HttpReply stream = server().post("/v1/responses", body);
  EXPECT_EQ(joined(stream, "response.output_text.delta", json::json_pointer("/delta")), kAnswer);
  EXPECT_EQ(stream.events().front()["type"], "response.created");
  EXPECT_EQ(stream.events().back()["response"]["output"][0]["content"][0]["text"], kAnswer);
  body["previous_response_id"] = "resp_1";
  expect_error(server().post("/v1/responses", body), 400, "previous_response_id", "stored");
}

TEST(Serve, AnswersMessages) {
  const std::string url = data_url_of(kScene);
  json body = {
      {"model", "scenes-llava"},
      {"temperature", 0},
      {"max_tokens", 100},
      {"messages",
       {{{"role", "user"},
         {"content",
          {{{"type", "image"},
            {"source",
             {{"type", "base64"}, {"media_type", "image/png"}, {"data", url.substr(url.find(',') + 1)}}}},
           {{"type", "text"}, {"text", "Describe the image."}}}}}}}};
  const json answer = server().post("/v1/messages", body).json();
  EXPECT_EQ(answer["content"][0]["text"], kAnswer) << answer;
  EXPECT_EQ(answer["stop_reason"], "end_turn");
  body["stream"] = true;
  const HttpReply stream = server().post("/v1/messages", body);
  EXPECT_EQ(joined(stream, "content_block_delta", json::json_pointer("/delta/text")), kAnswer);
  EXPECT_EQ(stream.events().back()["type"], "message_stop");
  body.erase("max_tokens");
  const HttpReply missing = server().post("/v1/messages", body);
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(missing.json()["type"], "error");
}

TEST(Serve, AnswersAsOllama) {
  const std::string url = data_url_of(kScene);
  const std::string image = url.substr(url.find(',') + 1);
  const json body = {
      {"model", "scenes-llava:latest"},
      {"options", {{"temperature", 0}}},
      {"messages", {{{"role", "user"}, {"content", "Describe the image."}, {"images", {image}}}}}};
  // With the type that curl sends when it is told none.
  const HttpReply stream = server().ask(
      http_request("POST", "/api/chat", body.dump(), "Content-Type: application/x-www-form-urlencoded\r\n"));
  ASSERT_EQ(stream.status, 200) << stream.body;
  std::istringstream lines(stream.body);
  std::string text;
  json last;
  for (std::string line; std::getline(lines, line);) {
    last = json::parse(line);
    text += last["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, kAnswer);
  EXPECT_EQ(last["done"], true);
  EXPECT_GT(last["eval_count"].get<int>(), 0);
  const json whole = server()
                         .post("/api/generate", {{"model", "scenes-llava"},
                                                 {"prompt", "Describe the image."},
                                                 {"images", {image}},
                                                 {"stream", false},
                                                 {"options", {{"temperature", 0}, {"num_predict", 3}}}})
                         .json();
  EXPECT_EQ(whole["response"], "a small purple") << whole;
  EXPECT_EQ(whole["done_reason"], "length");
  EXPECT_TRUE(
      server().post("/api/chat", {{"model", "x"}, {"messages", json::array()}}).json()["error"].is_string());
  EXPECT_EQ(server().get("/api/tags").json()["models"].size(), 2u);
}

TEST(Serve, AsksForAKey) {
  const Scratch scratch;
  write_file(scratch.path() / "keys", "# people\nalpha-key\n\nbeta-key\n");
  const ServerProcess locked({"--api-key-file", scratch.path() / "keys"});
  const auto models = [&](const std::string& headers) {
    return locked.ask(http_request("GET", "/v1/models", "", headers)).status;
  };
  EXPECT_EQ(models(""), 401);
  EXPECT_EQ(models("Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(models("Authorization: Bearer beta-key\r\n"), 200);
  EXPECT_EQ(models("x-api-key: alpha-key\r\n"), 200);
  EXPECT_EQ(locked.get("/health").status, 200);
}

TEST(Serve, ReadsFilesOfOneFolderAlone) {
  const ServerProcess one({"--allowed-local-media-path", kSource / "assets/eval"});
  const auto ask = [&](const std::string& url) { return one.post("/v1/chat/completions", chat_about(url)); };
  EXPECT_EQ(ask("file://" + kScene).json()["choices"][0]["message"]["content"], kAnswer);
  for (const std::filesystem::path& path :
       {kModel / "golden/scene1.png", kSource / "assets/eval/../models/x.png",
        std::filesystem::path("/etc/passwd")})
    expect_error(ask("file://" + path.string()), 400, "messages[0].content[0].image_url.url", "not there");
}

TEST(Serve, DrainsWhenItIsTold) {
  ServerProcess one({"--drain-seconds", "60"});
  HttpConnection busy(one.port());
  json body = chat_about(data_url_of(kScene));
  body["stream"] = true;
  busy.send(http_request("POST", "/v1/chat/completions", body.dump()));
  HttpConnection idle(one.port());
  idle.send(http_request("GET", "/live"));
  EXPECT_EQ(idle.read_reply().status, 200);
  ASSERT_TRUE(busy.read_until("\"delta\""));
  one.terminate();
  EXPECT_THAT(busy.read_reply().body, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(idle.is_closed());
  EXPECT_EQ(one.exit_code(), 0);
}

TEST(Serve, HandsItsPortOver) {
  ServerProcess first({"--reuse-port"});
  const int port = first.port();
  std::atomic<bool> stop{false};
  std::atomic<int> n_good{0}, n_bad{0};
  std::thread client([&] {
    while (!stop) {
      try {
        HttpConnection connection(port);
        connection.send(http_request("GET", "/v1/models"));
        (connection.read_reply().status == 200 ? n_good : n_bad)++;
      } catch (const std::exception&) {
        ++n_bad;
      }
    }
  });
  const ServerProcess second({"--reuse-port", "--port", std::to_string(port)});
  first.terminate();
  EXPECT_EQ(first.exit_code(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  stop = true;
  client.join();
  EXPECT_GT(n_good, 10);
  EXPECT_EQ(n_bad, 0);
}

TEST(Serve, ListensAtAUnixSocket) {
  const Scratch scratch;
  const std::string path = scratch.path() / "s.sock";
  ServerProcess one({"--uds", path});
  EXPECT_EQ(one.endpoint(), "unix:" + path);
  HttpConnection connection(path);
  connection.send(http_request("GET", "/health"));
  EXPECT_EQ(connection.read_reply().status, 200);
  connection.close();
  one.terminate();
  EXPECT_EQ(one.exit_code(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Serve, TurnsAwayWhatItHasNoRoomFor) {
  const ServerProcess full({"--max-num-seqs", "1", "--max-queue", "1"});
  json body = chat_about(data_url_of(kScene));
  body["ignore_eos"] = true;
  std::vector<std::unique_ptr<HttpConnection>> connections;
  for (int i = 0; i < 12; ++i) {
    connections.push_back(std::make_unique<HttpConnection>(full.port()));
    connections.back()->send(http_request("POST", "/v1/chat/completions", body.dump()));
  }
  int n_good = 0, n_refused = 0;
  for (auto& connection : connections) {
    const HttpReply reply = connection->read_reply();
    n_good += reply.status == 200;
    n_refused += reply.status == 429 && reply.header("retry-after") == "1";
  }
  EXPECT_GE(n_good, 2);
  EXPECT_GE(n_refused, 1);
  EXPECT_EQ(n_good + n_refused, 12);
}

}  // namespace
}  // namespace triptych::test
