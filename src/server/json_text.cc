#include "server/json_text.h"

#include <fmt/core.h>

#include <chrono>
#include <mutex>
#include <random>

#include <nlohmann/json.hpp>

namespace triptych::server {

std::string json_text(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string json_string(std::string_view text) { return json_text(OrderedJson(text)); }

std::string new_id(std::string_view prefix) {
  static std::mutex mutex;
  static std::mt19937_64 generator{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return fmt::format("{}{:016x}{:08x}", prefix, generator(), generator() & 0xFFFFFFFF);
}

std::int64_t unix_time_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace triptych::server
