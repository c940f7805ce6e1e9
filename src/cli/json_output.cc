#include "cli/json_output.h"

#include <fmt/core.h>

#include <cstdio>

#include <nlohmann/json.hpp>

namespace triptych::cli {

JsonOut json_document(std::string_view name, int version) {
  return {{"schema", fmt::format("triptych.{}/{}", name, version)}};
}

JsonOut json_document(std::string_view name, const JsonOut& content, int version) {
  JsonOut out = json_document(name, version);
  for (const auto& [key, value] : content.items()) out[key] = value;
  return out;
}

void print_json(const JsonOut& value, bool indented) {
  const std::string text = to_json_text(value, indented) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace triptych::cli
