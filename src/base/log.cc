#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log_event.h"

namespace triptych {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarning};
std::atomic<LogFormat> g_format{LogFormat::kText};

std::shared_ptr<spdlog::logger> make_logger(const char* pattern) {
  auto made =
      std::make_shared<spdlog::logger>("triptych", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  made->set_pattern(pattern);
  made->set_level(spdlog::level::trace);
  return made;
}

spdlog::logger& logger() {
  static const auto text = make_logger("%^%l:%$ %v"), json = make_logger("%v");
  return g_format == LogFormat::kJson ? *json : *text;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

std::string dumped(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// UTC, to the millisecond.
std::string time_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                     t.tm_hour, t.tm_min, t.tm_sec, ms % 1000);
}

OrderedJson json_of(const LogValue& value) {
  return std::visit([](const auto& one) { return OrderedJson(one); }, value);
}

void write_json(LogLevel level, std::string_view message, const LogFields& fields) {
  const auto word = spdlog::level::to_string_view(level_of(level));
  OrderedJson line = {
      {"time", time_now()}, {"level", std::string(word.data(), word.size())}, {"message", message}};
  for (const auto& [name, value] : fields) line[name] = json_of(value);
  logger().log(level_of(level), dumped(line));
}

// As it stands when it is one plain word, else in quotes.
std::string word_of(const LogValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return dumped(json_of(value));
  const bool is_plain = !text->empty() && text->find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789_-./:") == std::string::npos;
  return is_plain ? *text : dumped(OrderedJson(*text));
}

}  // namespace

void set_log_level(LogLevel level) noexcept { g_level = level; }
LogLevel log_level() noexcept { return g_level; }
void set_log_format(LogFormat format) noexcept { g_format = format; }

void log_message(LogLevel level, const std::string& message) {
  if (level == LogLevel::kOff) return;
  if (g_format == LogFormat::kJson) {
    write_json(level, message, {});
  } else {
    logger().log(level_of(level), message);
  }
}

void log_event(LogLevel level, std::string_view message, const LogFields& fields) {
  if (g_format == LogFormat::kJson) {
    write_json(level, message, fields);
    return;
  }
  std::string line(message);
  for (const auto& [name, value] : fields) line += " " + name + "=" + word_of(value);
  logger().log(level_of(level), line);
}

}  // namespace triptych
