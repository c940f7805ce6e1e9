#include "server/request_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>

#include "base/digest.h"
#include "base/log_event.h"
#include "server/json_text.h"

namespace triptych::server {
namespace {

constexpr std::size_t kMaxText_bytes = 16 << 10;
constexpr std::size_t kLongRun = 200;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool is_data(char c) {
  return is_word(c) || c == '+' || c == '/' || c == '=' || c == '-' || c == '_' || c == '%';
}

}  // namespace

void log_request(const RequestRecord& record) {
  LogFields fields = {{"id", record.id},
                      {"method", record.method},
                      {"route", record.route},
                      {"status", std::int64_t{record.status}},
                      {"ms", std::round(record.ms * 1e3) / 1e3},
                      {"body_bytes", static_cast<std::int64_t>(record.n_body_bytes)}};
  if (!record.key_name.empty()) fields.emplace_back("key", record.key_name);
  if (!record.body_hash.empty()) fields.emplace_back("body_hash", record.body_hash);
  if (!record.body_text.empty()) fields.emplace_back("body", record.body_text);
  if (record.counts.n_prompt_tokens > 0) {
    fields.emplace_back("prompt_tokens", record.counts.n_prompt_tokens);
    fields.emplace_back("image_tokens", record.counts.n_image_tokens);
    fields.emplace_back("cached_tokens", record.counts.n_cached_tokens);
    fields.emplace_back("completion_tokens", record.counts.n_answer_tokens);
  }
  log_event(LogLevel::kInfo, "request", fields);
}

std::string request_id_of(const HttpRequest& request) {
  const std::string_view own = request.header("x-request-id");
  const bool is_usable = !own.empty() && own.size() <= 128 && std::all_of(own.begin(), own.end(), [](char c) {
    return is_word(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
  return is_usable ? std::string(own) : new_id("req-");
}

std::string hash_of_body(std::string_view body) {
  static const std::array<std::uint32_t, 8> key = [] {
    std::random_device random;
    std::array<std::uint32_t, 8> out{};
    for (std::uint32_t& word : out) word = random();
    return out;
  }();
  Digest digest(std::as_bytes(std::span(key)));
  digest.add(std::as_bytes(std::span(body.data(), body.size())));
  return digest.finish_hex().substr(0, 16);
}

std::string text_of_body(std::string_view body) {
  std::string out;
  while (!body.empty() && out.size() < kMaxText_bytes) {
    std::size_t run = 0;
    while (run < body.size() && is_data(body[run])) ++run;
    if (run >= kLongRun) {
      out += fmt::format("<{} characters>", run);
    } else {
      if (run == 0) run = 1;
      out += body.substr(0, run);
    }
    body.remove_prefix(run);
  }
  if (!body.empty()) out += fmt::format("<{} more bytes>", body.size());
  return out;
}

}  // namespace triptych::server
