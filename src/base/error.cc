#include "base/error.h"

namespace triptych {

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidFile:
      return "invalid_file";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kContextLength:
      return "context_length_exceeded";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error Error::with_context(std::string_view context) const {
  return Error(code_, fmt::format("{}: {}", context, what()));
}

namespace detail {
void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(ErrorCode::kInternal, fmt::format("{}:{}: check failed: {}{}{}", file, line, condition,
                                                message.empty() ? "" : ": ", message));
}
}  // namespace detail

}  // namespace triptych
