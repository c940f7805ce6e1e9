#include "cli/json_output.h"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace triptych::cli {

void print_json(const JsonOut& value, bool indented) {
  const std::string text = to_json_text(value, indented) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace triptych::cli
