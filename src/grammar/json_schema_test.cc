// JSON schemas: what is let through against a validator of its own, numbers within limits against arithmetic,
// and what is refused by name and path.
#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/testing/texts.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using testing_grammar::all_texts;
using testing_grammar::Matcher;

Matcher matcher(std::string_view schema) { return Matcher(compile_json_schema(schema, "guided_json")); }

struct Table {
  const char* schema;
  std::vector<const char*> accepted;
  std::vector<const char*> rejected;
};

TEST(JsonSchema, AcceptsAndRejects) {
  const Table tables[] = {
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b","a"],
          "additionalProperties":false})",
       {R"({"b":1,"a":"x"})", R"({ "b": -20, "a": "" })", "{\n  \"b\": 0,\n  \"a\": \"\\u00e9\\n\"\n}"},
       {R"({"a":"x","b":1})", R"({"b":1})", R"({"b":1,"a":"x","c":2})", R"({"b":1.5,"a":"x"})",
        R"({"b":01,"a":"x"})", "{}", R"({"b" :1,"a":"x"})", R"({"b":1 ,"a":"x"})", R"({"b":1,"a":"x"} )",
        R"( {"b":1,"a":"x"})", R"({"b":1,"a":"x",})", R"({"b":1,  "a":"x"})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},
          "required":["b"]})",
       {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})",
        R"({"a":null,"b":null,"c":null})"},
       {R"({"a":null})", R"({"c":null})", R"({"b":null,"a":null})", R"({,"b":null})",
        R"({"d":null,"b":null})"}},
      {R"({"type":"object","properties":{"ab":{"type":"boolean"}},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"ab":true})", R"({"x":1})", R"({"ab":false,"a":1,"abc":2,"":3})", R"({"a\"b":1})",
        R"({"é":1})"},
       {R"({"ab":1})", R"({"x":true})", R"({"x":1,"ab":true})", R"({"x":1,"ab":2})", R"({"\u0061b":2})"}},
      {R"({"type":"object"})",
       {"{}", R"({"a":[1,{"b":null}],"c":"d"})", "{\n\t\"a\": 1e5\n}"},
       {"[]", R"({"a"})", R"({a:1})"}},
      {R"({"type":"object","required":["x"],"properties":{},"additionalProperties":true})",
       {R"({"x":[]})", R"({"x":1,"y":2})"},
       {"{}", R"({"y":1})", R"({"x":1,"x":2})"}},
      {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3})",
       {"[true]", "[true,false]", "[ true, false, true ]", "[\n    true,\n    false\n]"},
       {"[]", "[true,]", "[true false]", "[true,true,true,true]", "[1]"}},
      {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"type":"array"})", {"[]", "[[],{},\"a\",1,null]"}, {"{}"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")", R"("éé")", R"("\n\u0041")", R"("\ud83d\ude00x")", R"("😀x")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("\ud83dab")", "\"a\nb\"", R"(ab)"}},
      {R"({"type":"string","pattern":"^[a-z]+\"?$"})",
       {R"("abc")", R"("abc\"")"},
       {R"("")", R"("Abc")", R"("\u0061bc")", R"("abc"")"}},
      {R"({"type":"string","pattern":"b+\n"})",
       {R"("xb\ny")", R"("b\n")", R"("\"bb\n")"},
       {R"("b")", R"("\n")"}},
      {R"({"enum":["red","a\"b",1,null,{"x":[1,2]}]})",
       {R"("red")", R"("a\"b")", "1", "null", R"({"x":[1,2]})"},
       {R"("blue")", "2", "red"}},
      {R"({"type":["string","null"],"enum":["red",1,null]})", {R"("red")", "null"}, {"1"}},
      {R"({"const":"only"})", {R"("only")"}, {R"("on")", R"("onl)"}},
      {R"({"type":["integer","null"]})", {"5", "null", "-0"}, {"5.0", "\"5\""}},
      {R"({"type":"number"})",
       {"0", "-1.5", "2e10", "0.25E-3", "1e+2"},
       {"01", ".5", "1.", "+1", "1e", "--1", "1e309", "1234567890123456789"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":1}},"required":["k"]}]})",
       {"12", R"({"k":1})"},
       {R"({"k":2})", "{}"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"left":{"anyOf":[
          {"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["left"]}}})",
       {R"({"left":null})", R"({"left":{"left":{"left":null}}})"},
       {R"({"left":{}})"}},
      {R"({"type":"object","properties":{"next":{"$ref":"#"}}})",
       {"{}", R"({"next":{"next":{}}})"},
       {R"({"next":1})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}},"required":["a","b"]})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1,"b":"x"})"}},
      {R"({"allOf":[{"$ref":"#/definitions/a~1b%20c"}],"definitions":{"a/b c":{"type":"boolean"}}})",
       {"true"},
       {"1"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "98"}, {"1", "15", "07", "70.0"}},
      {R"({"type":"number","multipleOf":0.01})", {"0", "1.5", "-2.25"}, {"1.234", "1e2"}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("2023-02-28")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("2024-1-01")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-05-06T07:08:09Z")", R"("2024-05-06T23:59:59.125+02:00")"},
       {R"("2024-05-06 07:08:09Z")", R"("2024-05-06T24:00:00Z")", R"("2024-05-06T07:08:09")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"type":"string","format":"ipv4"})",
       {R"("0.1.20.255")"},
       {R"("1.2.3")", R"("1.2.3.256")", R"("01.2.3.4")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::")", R"("::1")", R"("2001:db8::ff00:42:8329")", R"("1:2:3:4:5:6:7:8")"},
       {R"("1:2:3")", R"(":::1")", R"("12345::")"}},
      {R"({"type":"string","format":"email"})",
       {R"("a.b@example.org")"},
       {R"("a@")", R"("@b.c")", R"("a b@c")"}},
      {R"({"type":"string","format":"duration"})",
       {R"("P3Y6M4DT12H30M5S")", R"("PT5M")", R"("P2W")"},
       {R"("P")", R"("PT")"}},
      {R"({})", {"1", "[{}]", "\"x\"", "null"}, {"nul", "", "1 "}},
      {"true", {"1", "{}"}, {"x"}},
  };
  for (const Table& table : tables) {
    SCOPED_TRACE(table.schema);
    Matcher m = matcher(table.schema);
    for (const char* text : table.accepted) {
      EXPECT_TRUE(m.matches(text)) << text;
      EXPECT_TRUE(Json::accept(text)) << text;
      for (std::size_t n = 0; n <= std::string_view(text).size(); ++n)
        ASSERT_TRUE(m.begins(std::string_view(text).substr(0, n))) << std::string_view(text).substr(0, n);
    }
    for (const char* text : table.rejected) EXPECT_FALSE(m.matches(text)) << text;
  }
}

// Every short text that a schema lets through parses and validates, and every beginning of one is begun.
TEST(JsonSchema, ShortTextsOverJsonsLetters) {
  struct Case {
    const char* schema;
    const char* letters;
    std::size_t n;
    std::function<bool(const Json&)> validates;
  };
  const Case cases[] = {
      {R"({"type":"array","items":{"type":"integer"},"maxItems":2})", "[],1-0", 7,
       [](const Json& v) {
         return v.is_array() && v.size() <= 2 &&
                std::all_of(v.begin(), v.end(), [](const Json& x) { return x.is_number_integer(); });
       }},
      {R"({"type":"object","additionalProperties":{"type":"object"}})", "{}\":a", 8,
       [](const Json& v) {
         return v.is_object() && std::all_of(v.begin(), v.end(), [](const Json& x) { return x.is_object(); });
       }},
      {R"({"type":["number","array"],"items":{"type":"null"}})", "[]1.e", 6,
       [](const Json& v) {
         return (v.is_number() && v.get<double>() < 1e100) || (v.is_array() && v.empty());
       }},
      {R"({"type":"string","maxLength":2})", "\"a\\n/", 6,
       [](const Json& v) { return v.is_string() && v.get_ref<const std::string&>().size() <= 2; }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.schema);
    Matcher m = matcher(one.schema);
    std::size_t n_accepted = 0;
    for (const std::string& text : all_texts(one.letters, one.n)) {
      const Json parsed = Json::parse(text, nullptr, false);
      const bool expected = !parsed.is_discarded() && one.validates(parsed);
      ASSERT_EQ(m.matches(text), expected) << text;
      if (!expected) continue;
      ++n_accepted;
      for (std::size_t n = 0; n <= text.size(); ++n) ASSERT_TRUE(m.begins(text.substr(0, n))) << text;
    }
    EXPECT_GE(n_accepted, 3U);
  }
}

TEST(JsonSchema, LimitsOfWholeNumbers) {
  for (const auto& [low, high] :
       {std::pair(0, 0), {-3, 17}, {5, 5}, {99, 1001}, {-120, -7}, {-1, 0}, {0, 10}, {9, 10}}) {
    Matcher both = matcher(fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", low, high));
    Matcher open = matcher(fmt::format(R"({{"type":"integer","exclusiveMinimum":{},"exclusiveMaximum":{}}})",
                                       low - 1, high + 1));
    Matcher at_least = matcher(fmt::format(R"({{"type":"integer","minimum":{}}})", low));
    Matcher at_most = matcher(fmt::format(R"({{"type":"integer","maximum":{}}})", high));
    Matcher between = matcher(fmt::format(R"({{"type":"integer","minimum":{}.5,"maximum":{}.5}})",
                                          std::max(low, 0), std::max(high, 0) + 1));
    for (int n = -12'000; n <= 12'000; ++n) {
      const std::string text = std::to_string(n);
      ASSERT_EQ(both.matches(text), n >= low && n <= high) << text << " in " << low << ' ' << high;
      ASSERT_EQ(open.matches(text), n >= low && n <= high) << text << " in " << low << ' ' << high;
      ASSERT_EQ(at_least.matches(text), n >= low) << text << " from " << low;
      ASSERT_EQ(at_most.matches(text), n <= high) << text << " to " << high;
      ASSERT_EQ(between.matches(text), n > std::max(low, 0) && n <= std::max(high, 0) + 1) << text;
    }
    EXPECT_FALSE(both.matches("007"));
    EXPECT_FALSE(both.matches("5.0"));
  }
}

TEST(JsonSchema, LimitsOfNumbers) {
  struct Limits {
    double low, high;
  };
  // Thousandths in the text are exact as long as they are compared as whole numbers.
  for (const Limits& limits :
       {Limits{0.5, 2.25}, {-1.125, 0.001}, {0, 1}, {-0.25, -0.125}, {9.99, 10.01}, {3, 3}})
    for (const bool exclusive : {false, true}) {
      const double low = limits.low;
      const double high = limits.high;
      if (exclusive && low == high) continue;
      const char* from = exclusive ? "exclusiveMinimum" : "minimum";
      const char* to = exclusive ? "exclusiveMaximum" : "maximum";
      Matcher m = matcher(fmt::format(R"({{"type":"number","{}":{},"{}":{}}})", from, low, to, high));
      const auto thousandths = [](double x) { return std::llround(x * 1000); };
      const auto fits = [&](std::int64_t n) {
        return exclusive ? n > thousandths(low) && n < thousandths(high)
                         : n >= thousandths(low) && n <= thousandths(high);
      };
      for (std::int64_t n = -12'000; n <= 12'000; ++n) {
        const std::string digits =
            fmt::format("{}{}.{:03}", n < 0 ? "-" : "", std::abs(n) / 1000, std::abs(n) % 1000);
        for (std::string text = digits;; text.pop_back()) {
          ASSERT_EQ(m.matches(text), fits(n)) << text << " in " << low << ' ' << high << ' ' << exclusive;
          ASSERT_EQ(m.matches(text + "0"), text.back() != '.' && fits(n)) << text;
          if (text.back() != '0') break;
          if (text[text.size() - 2] == '.') {
            text.resize(text.size() - 2);
            ASSERT_EQ(m.matches(text), fits(n)) << text;
            break;
          }
        }
      }
    }
  Matcher above = matcher(R"({"type":"number","exclusiveMinimum":1.5})");
  for (const char* text : {"1.51", "1.500001", "1.6", "2", "10", "123456.789"})
    EXPECT_TRUE(above.matches(text)) << text;
  for (const char* text : {"1.5", "1.50", "1.4999", "1", "0", "-2"})
    EXPECT_FALSE(above.matches(text)) << text;
  EXPECT_TRUE(above.begins("1.500"));
}

TEST(JsonSchema, DecimalsAreExact) {
  const auto text = [](const char* number) {
    const auto d = Decimal::parse(number);
    return d ? fmt::format("{}{}.{}", d->is_negative ? "-" : "", d->whole, d->fraction) : "none";
  };
  EXPECT_EQ(text("12"), "12.");
  EXPECT_EQ(text("-0.50"), "-0.5");
  EXPECT_EQ(text("1e-3"), "0.001");
  EXPECT_EQ(text("-1.25e+2"), "-125.");
  EXPECT_EQ(text("0.0"), "0.");
  EXPECT_EQ(text("-0"), "0.");
  EXPECT_EQ(text("1e39"), "1" + std::string(39, '0') + ".");
  EXPECT_EQ(text("1e300"), "none");
  EXPECT_EQ(text("1e-300"), "none");
}

struct Refused {
  const char* schema;
  ErrorCode code;
  const char* says;
};

TEST(JsonSchema, RefusesByNameAndPath) {
  const auto unsupported = ErrorCode::kUnsupported;
  const auto invalid = ErrorCode::kInvalidArgument;
  const Refused all[] = {
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})", unsupported,
       R"($.properties.a: keyword "uniqueItems" is not supported)"},
      {R"({"oneOf":[]})", unsupported, R"($: keyword "oneOf" is)"},
      {R"({"anyOf":[{"type":"null"},{"not":{}}]})", unsupported, R"($.anyOf[1]: keyword "not" is)"},
      {R"({"properties":{"a b":{"if":{}}}})", unsupported, R"($.properties["a b"]: keyword "if" is)"},
      {R"({"allOf":[{},{}]})", unsupported, R"($.allOf: "allOf" of more than one)"},
      {R"({"$ref":"other.json"})", unsupported, R"($.$ref: "other.json")"},
      {R"({"$ref":"#/$defs/x"})", invalid, "leads nowhere"},
      {R"({"$ref":"#/$defs/x","type":"null","$defs":{"x":{}}})", unsupported, R"("type" beside "$ref")"},
      {R"({"type":"object","anyOf":[{}]})", unsupported, R"("type" beside "anyOf")"},
      {R"({"enum":[1],"minimum":0})", unsupported, R"("minimum" beside "enum")"},
      {R"({"minLength":1,"minimum":1})", unsupported, "without a \"type\""},
      {R"({"type":"string","pattern":"a","minLength":2})", unsupported, R"("minLength" beside "pattern")"},
      {R"x({"type":"string","pattern":"a(?=b)"})x", unsupported,
       "guided_json: $.pattern: regular expression, byte 3"},
      {R"({"type":"string","format":"uri"})", unsupported, "$.format: format \"uri\" (these are: date, "},
      {R"({"type":"integer","multipleOf":3,"minimum":1})", unsupported, R"("multipleOf" beside a limit)"},
      {R"({"type":"number","multipleOf":0.3})", unsupported, "0.3"},
      {R"({"type":"integer","multipleOf":0})", invalid, "above 0"},
      {R"({"type":"number","minimum":1e300})", unsupported, "more than 40 digits"},
      {R"({"type":"integer","minimum":5,"maximum":4})", invalid, "no finite text"},
      {R"({"type":"integer","minimum":"5"})", invalid, R"($.minimum: expected a number, got "5")"},
      {R"({"type":"thing"})", invalid, "$.type: expected the name of a type"},
      {R"({"type":[]})", invalid, "at least one type"},
      {R"({"type":"array","minItems":3,"maxItems":2})", invalid, "minItems"},
      {R"({"type":"array","minItems":-1})", invalid, "$.minItems: expected a whole number"},
      {R"({"type":"array","minItems":1e9})", invalid, "$.minItems: expected a whole number"},
      {R"({"type":"object","required":["a"],"properties":{"b":{}}})", invalid, R"("a" is not among)"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", invalid, "the schema false"},
      {R"({"enum":[]})", invalid, "$.enum: expected a list of values"},
      {R"({"type":"string","enum":[1]})", invalid, "no value is of the type"},
      {R"({"type":"object","type":"array"})", invalid, "occurs twice"},
      {R"({"properties":{"a":{"$ref":"#/properties/a"}},"required":["a"]})", invalid, "no finite text"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", invalid, "no finite text"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", invalid, "begins with itself"},
      {"[1]", invalid, "expected a schema"},
      {"{", invalid, "not valid JSON"},
  };
  for (const Refused& one : all) try {
      compile_json_schema(one.schema, "guided_json");
      ADD_FAILURE() << one.schema << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), one.code) << one.schema << ": " << error.what();
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("guided_json: "), HasSubstr(one.says)));
    }
}

TEST(JsonSchema, LongChainsOfReferencesNeedNoStack) {
  std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)";
  constexpr int kDefs = 5000;
  for (int i = 0; i < kDefs; ++i) schema += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}"}},)", i, i + 1);
  schema += fmt::format(R"("d{}":{{"type":"null"}}}}}})", kDefs);
  EXPECT_TRUE(matcher(schema).matches("null"));
  EXPECT_THROW(compile_json_schema(std::string(300, '[') + std::string(300, ']'), "test"), Error);
  EXPECT_THROW(compile_json_schema('"' + std::string(kMaxSchemaBytes, 'a') + '"', "test"), Error);
}

TEST(JsonSchema, PointersAreDecodedInOnePass) {
  EXPECT_NO_THROW(
      compile_json_schema(R"({"$ref":"#/$defs/a~1b~01~0","$defs":{"a/b~1~":{"type":"null"}}})", "test"));
  std::string steps;
  for (int i = 0; i < 260'000; ++i) steps += "~1";
  EXPECT_THROW(compile_json_schema("{\"$ref\":\"#/" + steps + "\"}", "test"), Error);
}

}  // namespace
}  // namespace triptych
