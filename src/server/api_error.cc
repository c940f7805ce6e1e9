#include "server/api_error.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace triptych::server {
namespace {

ErrorCode code_of(int status) {
  return status == 503   ? ErrorCode::kOutOfMemory
         : status >= 500 ? ErrorCode::kInternal
         : status == 404 ? ErrorCode::kNotFound
                         : ErrorCode::kInvalidArgument;
}

}  // namespace

ApiError::ApiError(int status, std::string_view code, const std::string& message, std::string param)
    : Error(code_of(status), message), status_(status), error_code_(code), param_(std::move(param)) {}

ApiError ApiError::of(const Error& error, std::string param) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  switch (error.code()) {
    case ErrorCode::kContextLength:
      return {400, "context_length_exceeded", error.what(), std::move(param)};
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidFile:
      return {400, "invalid_value", error.what(), std::move(param)};
    case ErrorCode::kUnsupported:
      return {400, "unsupported_value", error.what(), std::move(param)};
    case ErrorCode::kNotFound:
      return {404, "not_found", error.what(), std::move(param)};
    case ErrorCode::kOutOfMemory:
      return {503, "out_of_memory", "the server has no memory left for this request", std::move(param)};
    default:
      return {500, "internal_error", error.what(), std::move(param)};
  }
}

ApiError ApiError::of_json(const Error& error, std::string_view source) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  std::string_view what = error.what();
  const std::string prefix = std::string(source) + ": ";
  if (what.substr(0, prefix.size()) != prefix) return of(error);
  what.remove_prefix(prefix.size());
  // "PATH: expected ...", "PATH: "KEY" is missing" or, at the top, "KEY" is missing.
  std::string param;
  std::string_view rest = what;
  if (!what.empty() && what.front() != '"') {
    const std::size_t end = what.find(": ");
    if (end == std::string_view::npos) return {400, "invalid_value", std::string(what)};
    param = std::string(what.substr(0, end));
    rest = what.substr(end + 2);
    if (param.find(' ') != std::string::npos) return {400, "invalid_value", std::string(what)};  // no path
  }
  constexpr std::string_view kMissing = "\" is missing";
  if (!rest.empty() && rest.front() == '"' && rest.size() > kMissing.size() &&
      rest.substr(rest.size() - kMissing.size()) == kMissing) {
    const std::string key(rest.substr(1, rest.size() - kMissing.size() - 1));
    param += param.empty() ? key : "." + key;
    return {400, "missing_required_parameter", param + " is missing", param};
  }
  return {400, "invalid_value", std::string(what), param};
}

std::string_view ApiError::type() const noexcept {
  switch (status_) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status_ >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string ApiError::body(std::string_view path) const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const OrderedJson error = {{"message", what()},
                             {"type", type()},
                             {"param", OrderedJson(or_null(param_))},
                             {"code", OrderedJson(or_null(error_code_))}};
  OrderedJson out = {{"error", error}};
  if (path.substr(0, 5) == "/api/") out = {{"error", what()}};
  if (path.substr(0, 12) == "/v1/messages")
    out = {{"type", "error"}, {"error", {{"type", type()}, {"message", what()}}}};
  return out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpResponse ApiError::response(std::string_view path) const {
  HttpResponse out;
  out.status = status_;
  out.body = body(path);
  const int wait_s = retry_after_s_ > 0 ? retry_after_s_ : status_ == 429 ? 1 : 5;
  if (status_ == 429 || status_ == 503) out.headers.emplace_back("Retry-After", std::to_string(wait_s));
  if (status_ == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace triptych::server
