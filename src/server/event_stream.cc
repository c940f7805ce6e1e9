#include "server/event_stream.h"

#include <fmt/core.h>

namespace triptych::server {

void EventStream::send(std::string_view text, std::string_view name) {
  if (!begun_) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // proxies keep nothing back
    exchange_->start_stream(head);
    begun_ = true;
  }
  exchange_->send(name.empty() ? fmt::format("data: {}\n\n", text)
                               : fmt::format("event: {}\ndata: {}\n\n", name, text));
}

}  // namespace triptych::server
