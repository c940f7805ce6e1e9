// A regular expression of arbitrary bytes, for a whole text and within a JSON string.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/regex_grammar.h"
#include "grammar_walk.h"
#include "unicode/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triptych;
  if (size > 1 << 12) return 0;
  const std::string_view pattern(reinterpret_cast<const char*>(data), size);
  fuzz::only_errors([&] {
    fuzz::walk(compile_regex(pattern, "fuzz"), static_cast<std::uint32_t>(size), 100,
               [](const std::string& text) { fuzz::require(utf8::is_valid(text), "a whole text is UTF-8"); });
  });
  return fuzz::only_errors([&] {
    GrammarBuilder builder("fuzz");
    JsonGrammar json(builder);
    const auto root = builder.declare("root");
    builder.define(root, json.quoted(add_regex(
                             builder, pattern,
                             {.where = "fuzz", .searches = true, .characters = [&](const CharacterSet& set) {
                                return json.character_of(set);
                              }})));
    fuzz::walk(builder.build(root), static_cast<std::uint32_t>(size), 100,
               [](const std::string& text) { fuzz::require(Json::accept(text), "a whole text is JSON"); });
  });
}
