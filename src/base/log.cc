#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace triptych {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("triptych", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l:%$ %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) noexcept { g_level = level; }
LogLevel log_level() noexcept { return g_level; }

void log_message(LogLevel level, const std::string& message) {
  switch (level) {
    case LogLevel::kDebug:
      logger().debug(message);
      break;
    case LogLevel::kInfo:
      logger().info(message);
      break;
    case LogLevel::kWarning:
      logger().warn(message);
      break;
    case LogLevel::kError:
      logger().error(message);
      break;
    case LogLevel::kOff:
      break;
  }
}

}  // namespace triptych
