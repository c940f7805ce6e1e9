#include "grammar/json_grammar.h"

#include <vector>

#include "base/error.h"

namespace triptych {
namespace {

// Of those that the grammar of a string lets stand for themselves.
const CharacterSet& plain_characters() {
  static const CharacterSet set = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
  return set;
}

}  // namespace

// Rules that call each other are declared before they are made.
JsonGrammar::Node JsonGrammar::once(std::optional<GrammarBuilder::Rule>& rule, const char* name,
                                    Node (JsonGrammar::*make)()) {
  if (!rule) {
    rule = b_.declare(name);
    b_.define(*rule, (this->*make)());
  }
  return b_.call(*rule);
}

JsonGrammar::Node JsonGrammar::blank() { return once(blank_, "blank", &JsonGrammar::make_blank); }
JsonGrammar::Node JsonGrammar::string() { return once(string_, "string", &JsonGrammar::make_string); }
JsonGrammar::Node JsonGrammar::value() { return once(value_, "value", &JsonGrammar::make_value); }
JsonGrammar::Node JsonGrammar::object() { return once(object_, "object", &JsonGrammar::make_object); }
JsonGrammar::Node JsonGrammar::array() { return once(array_, "array", &JsonGrammar::make_array); }
JsonGrammar::Node JsonGrammar::string_character() {
  return once(string_character_, "a character of a string", &JsonGrammar::make_string_character);
}

JsonGrammar::Node JsonGrammar::make_blank() {
  constexpr std::uint32_t kMostBlanks = 40;
  constexpr std::uint32_t kMostTabs = 10;
  const Node indent =
      b_.choice({b_.repeat(b_.literal(" "), 0, kMostBlanks), b_.repeat(b_.literal("\t"), 1, kMostTabs)});
  return b_.choice({b_.empty(), b_.literal(" "), b_.sequence({b_.literal("\n"), indent})});
}

JsonGrammar::Node JsonGrammar::make_string_character() {
  const CharacterSet hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  const auto one_of = [&](const CharacterSet& set) { return b_.characters(set); };
  const Node any = one_of(hex);
  const Node no_surrogate =
      b_.sequence({one_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), any, any, any});
  const Node d = one_of({{'D', 'D'}, {'d', 'd'}});
  const Node below_surrogates = b_.sequence({d, one_of({{'0', '7'}}), any, any});
  const Node pair = b_.sequence({d, one_of({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), any, any, b_.literal("\\u"),
                                 d, one_of({{'C', 'F'}, {'c', 'f'}}), any, any});
  const Node by_number = b_.sequence({b_.literal("u"), b_.choice({no_surrogate, below_surrogates, pair})});
  const Node escaped = b_.choice({one_of({{'"', '"'},
                                          {'/', '/'},
                                          {'\\', '\\'},
                                          {'b', 'b'},
                                          {'f', 'f'},
                                          {'n', 'n'},
                                          {'r', 'r'},
                                          {'t', 't'}}),
                                  by_number});
  return b_.choice({b_.characters(plain_characters()), b_.sequence({b_.literal("\\"), escaped})});
}

JsonGrammar::Node JsonGrammar::character_of(const CharacterSet& set) {
  std::vector<Node> spellings = {b_.characters(set.intersection(plain_characters()))};
  std::vector<std::string> escaped;
  for (char32_t c = 0; c <= '\\'; c = c == 0x1F ? U'"' : c == '"' ? U'\\' : c + 1) {
    if (!set.contains(c)) continue;
    switch (c) {
      case '"':
        escaped.emplace_back("\\\"");
        break;
      case '\\':
        escaped.emplace_back("\\\\");
        break;
      case '\b':
        escaped.emplace_back("\\b");
        break;
      case '\f':
        escaped.emplace_back("\\f");
        break;
      case '\n':
        escaped.emplace_back("\\n");
        break;
      case '\r':
        escaped.emplace_back("\\r");
        break;
      case '\t':
        escaped.emplace_back("\\t");
        break;
      default:
        escaped.push_back(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
    }
  }
  if (!escaped.empty()) spellings.push_back(b_.words(std::move(escaped)));
  return b_.choice(spellings);
}

JsonGrammar::Node JsonGrammar::make_string() { return string(0, std::nullopt); }

JsonGrammar::Node JsonGrammar::string(std::uint32_t min, std::optional<std::uint32_t> max) {
  return quoted(b_.repeat(string_character(), min, max));
}

JsonGrammar::Node JsonGrammar::make_value() {
  return b_.choice({object(), array(), string(), number(), b_.words({"true", "false", "null"})});
}

JsonGrammar::Node JsonGrammar::make_object() {
  const Node one = b_.shared("member", member(string(), value()));
  const Node all = b_.sequence({one, b_.repeat(b_.sequence({comma(), one}), 0, std::nullopt), blank()});
  return b_.sequence({b_.literal("{"), blank(), b_.optional(all), b_.literal("}")});
}

JsonGrammar::Node JsonGrammar::make_array() { return array_of(value(), 0, std::nullopt); }

JsonGrammar::Node JsonGrammar::array_of(Node element, std::uint32_t min, std::optional<std::uint32_t> max) {
  const Node open = b_.sequence({b_.literal("["), blank()});
  if (max && *max == 0) return b_.sequence({open, b_.literal("]")});
  std::optional<std::uint32_t> max_more;
  if (max) max_more = *max - 1;
  const Node more = b_.repeat(b_.sequence({comma(), element}), min == 0 ? 0 : min - 1, max_more);
  const Node all = b_.sequence({element, more, blank()});
  return b_.sequence({open, min == 0 ? b_.optional(all) : all, b_.literal("]")});
}

}  // namespace triptych
