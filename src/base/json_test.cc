#include "base/json.h"

#include <gtest/gtest.h>

#include <functional>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace triptych {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "no error";
}

TEST(ParseJson, NamesTheSourceAndThePlace) {
  const std::string error = error_of([] { parse_json("{\"a\": tru}", "config.json"); });
  EXPECT_EQ(error.rfind("config.json: not valid JSON: ", 0), 0u) << error;
  EXPECT_NE(error.find("line 1"), std::string::npos) << error;
  EXPECT_NE(error_of([] { parse_json("", "x"); }), "no error");
  EXPECT_NE(error_of([] { parse_json("{} {}", "x"); }), "no error");
  EXPECT_NE(error_of([] { parse_json("\"\xff\"", "x"); }), "no error");
}

TEST(ParseJson, LongTokensDoNotFillTheMessage) {
  const std::string text = "[\"" + std::string(1 << 20, 'x');
  EXPECT_LT(error_of([&] { parse_json(text, "x"); }).size(), 500u);
}

TEST(ParseJson, DepthIsLimited) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json(nested(256), "x"));
  EXPECT_NE(error_of([&] { parse_json(nested(257), "x"); }).find("256 levels"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_json(std::string(5'000'000, '['), "x"); }).find("256 levels"),
            std::string::npos);
  // Brackets inside strings do not count.
  EXPECT_NO_THROW(parse_json("[\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"]", "x"));
}

TEST(ParseJson, UniqueKeys) {
  EXPECT_EQ(parse_json("{\"a\":1,\"a\":2}", "x").at("a"), 2);
  EXPECT_EQ(error_of([] { parse_json_unique_keys("{\"a\":1,\"b\":{},\"a\":2}", "x"); }),
            "x: the key \"a\" occurs twice in one object");
  EXPECT_NE(error_of([] { parse_json_unique_keys("[{\"a\":{\"b\":1,\"b\":2}}]", "x"); }), "no error");
  const Json same = parse_json_unique_keys("{\"a\":{\"a\":1},\"b\":{\"a\":[{\"a\":2},{\"a\":3}]}}", "x");
  EXPECT_EQ(same, parse_json("{\"a\":{\"a\":1},\"b\":{\"a\":[{\"a\":2},{\"a\":3}]}}", "x"));
}

TEST(JsonView, SaysWhichFieldIsWrong) {
  const Json json =
      parse_json(R"({"vision_config": {"patch_size": "14", "layers": [1, 2.5]}, "none": null})", "x");
  const JsonView view(json, "config.json");
  EXPECT_EQ(error_of([&] { view.at("vision_config").at("patch_size").as_int(1, 1024); }),
            "config.json: vision_config.patch_size: expected an integer in [1, 1024], got \"14\"");
  EXPECT_EQ(error_of([&] { view.at("vision_config").at("layers").items()[1].as_int(); }),
            "config.json: vision_config.layers[1]: expected an integer, got 2.5");
  EXPECT_EQ(error_of([&] { view.at("text_config"); }), "config.json: \"text_config\" is missing");
  EXPECT_FALSE(view.has("none"));
  EXPECT_EQ(view.get_int("none", 7), 7);
  EXPECT_EQ(view.get_string("absent", "x"), "x");
  EXPECT_NE(error_of([&] { view.at("vision_config").get_bool("patch_size", true); }), "no error");
}

TEST(JsonView, IntegersAreExact) {
  const auto as_int = [](const char* text) {
    const Json json = parse_json(text, "x");
    return JsonView(json, "x").as_int();
  };
  EXPECT_EQ(as_int("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(as_int("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(as_int("8.0"), 8);
  for (const char* bad : {"9223372036854775808", "1e30", "0.5", "\"1\"", "true", "null", "-1e999"})
    EXPECT_THROW(as_int(bad), Error) << bad;
}

}  // namespace
}  // namespace triptych
