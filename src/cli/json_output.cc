#include "cli/json_output.h"

#include <cstdio>

namespace triptych::cli {

std::string to_json_text(const JsonOut& value, bool indented) {
  return value.dump(indented ? 2 : -1, ' ', false, JsonOut::error_handler_t::replace);
}

void print_json(const JsonOut& value, bool indented) {
  const std::string text = to_json_text(value, indented) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace triptych::cli
