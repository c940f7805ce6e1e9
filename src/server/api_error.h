// What is wrong with a request, as OpenAI's API says it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http.h"

namespace triptych::server {

/// An Error with what a client is told beside the message.
class ApiError : public Error {
 public:
  /// `param`: path of the field, "messages[0].content"; may be empty. `code`: a short stable word, may be
  /// empty.
  ApiError(int status, std::string_view code, const std::string& message, std::string param = {});
  /// Of what the library throws: its code decides the status.
  static ApiError of(const Error& error, std::string param = {});
  /// Of what JsonView throws about a document named `source`: the path becomes the param.
  static ApiError of_json(const Error& error, std::string_view source);

  /// Seconds to wait, for Retry-After; else it is 1 for 429 and 5 for 503.
  void set_retry_after(int seconds) noexcept { retry_after_s_ = seconds; }

  int status() const noexcept { return status_; }
  const std::string& param() const noexcept { return param_; }
  const std::string& error_code() const noexcept { return error_code_; }
  /// "invalid_request_error", "authentication_error", "rate_limit_error", "server_error", ...
  std::string_view type() const noexcept;

  /// {"error": {"message", "type", "param", "code"}}; of paths of other APIs as these write errors: Ollama's
  /// {"error": "message"}, Anthropic's {"type": "error", "error": {"type", "message"}}.
  std::string body(std::string_view path = {}) const;
  /// With Retry-After for 429 and 503.
  HttpResponse response(std::string_view path = {}) const;

 private:
  int status_;
  int retry_after_s_ = 0;  // 0: not said
  std::string error_code_;
  std::string param_;
};

}  // namespace triptych::server
