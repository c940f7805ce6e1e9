// Errors. A failure (a bad file, a bad value, no memory) is an exception of type Error whose message names
// the file, field or tensor, what was expected and what was found, e.g. "config.json:
// text_config.hidden_size: expected an integer >= 1, got -4". An expected outcome is a return value.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "triptych/export.h"

namespace triptych::api {

enum class ErrorCode {
  kInvalidArgument,  // a caller's or a user's value is out of range
  kInvalidFile,      // bytes from outside do not have the form they should have
  kNotFound,         // a file, tensor or name is missing
  kUnsupported,      // well-formed, but not something this build can do
  kContextLength,    // a prompt does not fit the context
  kOutOfMemory,
  kIo,        // the operating system refused a read, map or write
  kInternal,  // a check failed: a fault of the library
};

/// Short stable name, e.g. "invalid_file".
TRIPTYCH_API std::string_view to_string(ErrorCode code) noexcept;

/// Thrown by whatever may fail; immutable, so that any thread may read it.
class TRIPTYCH_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  Error(const Error& other) noexcept;
  Error& operator=(const Error& other) noexcept;
  ~Error() override;

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace triptych::api
