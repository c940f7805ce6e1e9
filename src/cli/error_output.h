// How an error is said: one line on stderr, as text or, with --json, as an object. stdout holds results only.
#pragma once

#include <string>
#include <string_view>

#include "api/public.h"
#include "base/error.h"
#include "cli/json_output.h"

namespace triptych::cli {

/// What went wrong, in words for people and in one for programs ("invalid_file", docs/json.md).
struct Failure {
  std::string code;
  std::string message;
  int exit_code = 0;
};

Failure failure_of(const Error& error);
Failure failure_of(const api::Error& error);
Failure failure_of(const api::RequestError& error);
/// A flag, verb or value that cannot be used.
Failure bad_usage(std::string message);

/// {"code", "message"}.
JsonOut error_json(const Failure& failure);

/// "triptych: error: MESSAGE" or a document triptych.error; returns the exit code.
int report_error(const Failure& failure, bool json);

}  // namespace triptych::cli
