// What a request and its answer are to whoever answers: free of sockets. http_server.h carries them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych::server {

struct HttpRequest {
  std::string method;                                        // "GET"
  std::string target;                                        // as it was sent, "/v1/models?x=1"
  std::string path;                                          // of the target, without query
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in the order sent
  std::string body;

  /// The first header of this name (in lower case); empty: none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
};

/// "OK" of 200; "Unknown" for a status that this program never gives.
std::string_view reason_phrase(int status) noexcept;

/// Tokens of a request and of all answers to it.
struct AnswerCounts {
  std::int64_t n_prompt_tokens = 0, n_image_tokens = 0, n_cached_tokens = 0, n_answer_tokens = 0;
};

/// One request that waits for its answer: either respond(), or start_stream(), send() and end_stream(). Any
/// thread may call; nothing here waits for the client.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const noexcept = 0;
  /// The body, taken out of the request: pictures need not be kept while an answer is made.
  virtual std::string take_body() = 0;
  virtual void respond(HttpResponse response) = 0;
  /// Sends the head; `head.body` is not looked at.
  virtual void start_stream(const HttpResponse& head) = 0;
  /// False when the client is gone, or was dropped because it did not read what was sent.
  virtual bool send(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  virtual bool is_open() const noexcept = 0;
  /// Called once when the client leaves before the answer has ended: on the network thread, or at once when
  /// it has left already. It may not wait.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  /// What its answers took, before the last of them ends; for whoever keeps a record.
  virtual void note(const AnswerCounts&) {}
};

/// Answers requests. Both functions are called on the network thread and may not wait.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Called when the head was read and before the body is: an answer here saves reading it.
  virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  /// The answer to what is no HTTP, or is too large: the status and why. `what` is for people.
  virtual HttpResponse protocol_error(int status, std::string_view what) = 0;
};

}  // namespace triptych::server
