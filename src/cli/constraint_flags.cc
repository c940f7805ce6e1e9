#include "cli/constraint_flags.h"

#include <fstream>
#include <string_view>

#include "base/error.h"
#include "cli/flag_checks.h"

namespace triptych::cli {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string read_text(const char* flag, const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  std::string out(kMaxFileBytes + 1, '\0');
  if (!file || !file.read(out.data(), static_cast<std::streamsize>(out.size())).eof()) {
    if (!file || file.gcount() != static_cast<std::streamsize>(out.size()))
      fail(ErrorCode::kIo, "{}: {} cannot be read", flag, name);
    fail(ErrorCode::kInvalidArgument, "{}: {}: expected at most {} bytes", flag, name, kMaxFileBytes);
  }
  out.resize(static_cast<std::size_t>(file.gcount()));
  if (out.empty()) fail(ErrorCode::kInvalidArgument, "{}: {} is empty", flag, name);
  return out;
}

// A schema is an object (or true); file names do not begin so.
bool is_schema_text(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace

void ConstraintFlags::add_to(CLI::App& app) {
  CLI::Option* const json =
      app.add_option("--json-schema,--guided-json", json_schema,
                     "The answer is a JSON document of this schema, given as text or as the name of a file");
  json->type_name("FILE");
  CLI::Option* const pattern =
      app.add_option("--guided-regex", regex, "The answer as a whole matches this regular expression");
  pattern->type_name("REGEX");
  CLI::Option* const words =
      app.add_option("--guided-choice", choice, "The answer is one of these; may be repeated");
  words->expected(1)->take_all()->delimiter(',')->type_name("TEXT,...");
  CLI::Option* const grammar = app.add_option("--grammar-file", grammar_file,
                                              "The answer is a text of the grammar (GBNF) in this file");
  grammar->type_name("FILE");
  for (CLI::Option* option : {json, pattern, words, grammar})
    option->check(is_not_empty())->group("Sampling");
  json->excludes(pattern, words, grammar);
  pattern->excludes(words, grammar);
  words->excludes(grammar);
}

std::vector<NamedPath> ConstraintFlags::inputs() const {
  std::vector<NamedPath> out;
  if (!json_schema.empty() && !is_schema_text(json_schema)) out.push_back({"--json-schema", json_schema});
  if (!grammar_file.empty()) out.push_back({"--grammar-file", grammar_file});
  return out;
}

api::SamplingParams ConstraintFlags::over(api::SamplingParams sampling) const {
  if (!json_schema.empty())
    sampling.guided_json =
        is_schema_text(json_schema) ? json_schema : read_text("--json-schema", json_schema);
  sampling.guided_regex = regex;
  sampling.guided_choice = choice;
  if (!grammar_file.empty()) sampling.guided_grammar = read_text("--grammar-file", grammar_file);
  return sampling;
}

}  // namespace triptych::cli
