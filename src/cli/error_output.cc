#include "cli/error_output.h"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

template <typename Code>
Failure failure(Code code, std::string message) {
  const bool is_fault = code == Code::kOutOfMemory || code == Code::kInternal;
  return {std::string(to_string(code)), std::move(message), is_fault ? kExitFault : kExitBadInput};
}

}  // namespace

Failure failure_of(const Error& error) { return failure(error.code(), error.what()); }
Failure failure_of(const api::Error& error) { return failure(error.code(), error.what()); }
Failure failure_of(const api::RequestError& error) { return failure(error.code, error.message); }
Failure bad_usage(std::string message) { return failure(ErrorCode::kInvalidArgument, std::move(message)); }

JsonOut error_json(const Failure& failure) { return {{"code", failure.code}, {"message", failure.message}}; }

int report_error(const Failure& failure, bool json) {
  std::fflush(stdout);
  std::string line;
  if (json) {
    JsonOut out = json_document("error");
    out["error"] = error_json(failure);
    out["exit_code"] = failure.exit_code;
    line = to_json_text(out, false) + '\n';
  } else {
    line = "triptych: error: " + one_line(failure.message) + '\n';
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
  return failure.exit_code;
}

}  // namespace triptych::cli
