// Server-sent events, begun with the first of them: until then an error can still have its own status.
#pragma once

#include <memory>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace triptych::server {

class EventStream {
 public:
  explicit EventStream(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  bool has_begun() const noexcept { return begun_; }
  /// "data: TEXT" and an empty line, with "event: NAME" before it when there is a name.
  void send(std::string_view text, std::string_view name = {});
  void end() { exchange_->end_stream(); }
  Exchange& exchange() noexcept { return *exchange_; }

 private:
  std::shared_ptr<Exchange> exchange_;
  bool begun_ = false;
};

}  // namespace triptych::server
