#include "cli/constraint_flags.h"

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "cli/flag_checks.h"
#include "cli/help_tree.h"
#include "cli/input_file.h"

namespace triptych::cli {
namespace {

constexpr std::uint64_t kMaxFile_bytes = std::uint64_t{1} << 20;

std::string read_text(const char* flag, const std::string& name) {
  std::string out = read_all_text(name, kMaxFile_bytes, fmt::format("{}: {}", flag, name));
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
  CLI::Option* const gbnf = app.add_option("--grammar-file", grammar_file,
                                           "The answer is a text of the grammar (GBNF) in this file");
  gbnf->type_name("FILE");
  for (CLI::Option* option : {json, pattern, words, gbnf}) option->group(help_group::kSampling);
  json->excludes(pattern, words, gbnf);
  pattern->excludes(words, gbnf);
  words->excludes(gbnf);
}

std::vector<NamedPath> ConstraintFlags::inputs() const {
  std::vector<NamedPath> out;
  if (!json_schema.empty() && !is_schema_text(json_schema)) out.push_back({"--json-schema", json_schema});
  if (!grammar_file.empty()) out.push_back({"--grammar-file", grammar_file});
  return out;
}

void ConstraintFlags::read_files() {
  if (!json_schema.empty() && !is_schema_text(json_schema))
    json_schema = read_text("--json-schema", json_schema);
  if (!grammar_file.empty()) grammar = read_text("--grammar-file", grammar_file);
}

api::SamplingParams ConstraintFlags::over(api::SamplingParams sampling) const {
  sampling.guided_json = json_schema;
  sampling.guided_regex = regex;
  sampling.guided_choice = choice;
  sampling.guided_grammar = grammar;
  return sampling;
}

}  // namespace triptych::cli
