// The snippets, one for each feature and odd corner of the language, against what Python's jinja2 gives
// (frozen by tools/make_template_cases.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jinja/evaluator.h"
#include "jinja/json_values.h"
#include "jinja/parser.h"
#include "support/source_dir.h"

namespace triptych::jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson read_json(const char* name) {
  const std::filesystem::path path = test::source_dir() / "tests/data/chat_templates" / name;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return OrderedJson::parse(in);
}

/// The clock of the frozen results: 2024-07-04 15:07:09, a Thursday.
std::tm frozen_now() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 15;
  now.tm_min = 7;
  now.tm_sec = 9;
  now.tm_wday = 4;
  now.tm_yday = 185;
  return now;
}

/// Text, or how it failed, in the form the frozen files have.
OrderedJson outcome(const std::string& source, const OrderedJson& variables) {
  try {
    const auto program = parse_program(source, "snippet");
    Evaluator evaluator(*program, {}, frozen_now(), 1u << 24);
    for (const auto& [name, value] : variables.items())
      evaluator.variables().set(evaluator.string(name), value_from_json(evaluator, value, 1));
    return {{"output", evaluator.render().str()}};
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << source << "\n" << error.what();
    return {{"failed", error.what()}};
  }
}

TEST(JinjaSnippets, EverySnippetGivesWhatJinja2Gives) {
  const OrderedJson cases = read_json("snippets.json");
  const OrderedJson variables = read_json("variables.json");
  ASSERT_GE(cases.size(), 500u);
  for (const OrderedJson& snippet : cases) {
    const auto source = snippet.at("template").get<std::string>();
    const OrderedJson got = outcome(source, variables);
    if (snippet.contains("output")) {
      ASSERT_TRUE(got.contains("output")) << source << "\n" << got.dump();
      EXPECT_EQ(got.at("output"), snippet.at("output")) << source;
    } else {
      ASSERT_TRUE(got.contains("failed")) << source << "\nexpected " << snippet.dump();
      if (snippet.contains("raised")) {
        EXPECT_EQ(got.at("failed"), snippet.at("raised")) << source;
      }
    }
  }
}

}  // namespace
}  // namespace triptych::jinja
