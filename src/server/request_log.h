// A line in the log for each request, without what was asked unless that is wanted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.h"

namespace triptych::server {

enum class LogRequests {
  kOff,   // no lines
  kHash,  // a line each; equal bodies have equal numbers as long as this process runs, and say nothing else
  kText,  // the bodies as well, pictures left out
};

struct RequestRecord {
  std::string id = {}, method = {}, route = {}, key_name = {};
  std::string body_hash = {}, body_text = {};  // as LogRequests says; empty: there was no body
  std::uint64_t n_body_bytes = 0;
  int status = 0;
  double ms = 0;
  AnswerCounts counts = {};
};
void log_request(const RequestRecord& record);

/// The client's x-request-id, when it has 1 to 128 letters, digits or any of "-_.:", else a new one.
std::string request_id_of(const HttpRequest& request);

/// 16 digits, of a digest whose key this process drew: short texts cannot be guessed from it.
std::string hash_of_body(std::string_view body);
/// Long runs without spaces (pictures, as a rule) are replaced by their length, and the end is cut at 16 KiB.
std::string text_of_body(std::string_view body);

}  // namespace triptych::server
