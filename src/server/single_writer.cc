#include "server/single_writer.h"

#include <fmt/core.h>

#include <ctime>

namespace triptych::server {

std::string utc_time(std::int64_t unix_s) {
  const std::time_t time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void SingleWriter::begin_once() {
  if (begun_) return;
  begun_ = true;
  begin();
}

void SingleWriter::token(std::size_t, const TokenEvent& event) {
  text_ += event.text;
  if (!stream_ || event.text.empty()) return;
  begin_once();
  delta(event.text);
}

std::string SingleWriter::finished(std::size_t, const GenerationResult& result) {
  return std::string(to_string(result.finish_reason));
}

void SingleWriter::all_finished(const std::vector<GenerationResult>& results) {
  if (stream_) {
    begin_once();
    end(results.front());
    exchange_->end_stream();
    return;
  }
  HttpResponse response;
  response.body = whole(results.front());
  exchange_->respond(std::move(response));
}

void SingleWriter::failed(const ApiError& error) {
  if (!begun_) {
    exchange_->respond(error.response(exchange_->request().path));
    return;
  }
  broken(error);
  exchange_->end_stream();
}

}  // namespace triptych::server
