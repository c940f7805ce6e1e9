// Errors that carry their context. A failure (bad file, bad config, no memory) throws Error; an expected
// outcome is a return value; a programmer's mistake is TRIPTYCH_CHECK, always on. Messages name the file,
// field or tensor, what was expected and what was found, e.g. "config.json: text_config.hidden_size: expected
// an integer >= 1, got -4".
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace triptych {

enum class ErrorCode {
  kInvalidArgument,  // a caller's or a user's value is out of range
  kInvalidFile,      // bytes from outside do not have the form they should have
  kNotFound,         // a file, tensor or name is missing
  kUnsupported,      // well-formed, but not something this build can do
  kContextLength,    // a prompt does not fit the context
  kOutOfMemory,
  kIo,        // the operating system refused a read, map or write
  kInternal,  // a check failed: a fault of this program
};

/// Short stable name, e.g. "invalid_file".
std::string_view to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }
  /// The same error with "context: " in front of its message.
  Error with_context(std::string_view context) const;

 private:
  ErrorCode code_;
};

/// Throws Error(code, formatted message).
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace triptych

/// A programmer's mistake: always on, throws Error(kInternal) that names the place. Extra arguments are a fmt
/// message.
#define TRIPTYCH_CHECK(condition, ...)                                                                 \
  do {                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                     \
      ::triptych::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
