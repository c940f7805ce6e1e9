// Angles of every scaling against transformers 5.24 (LlamaRotaryEmbedding: heads of 16, the last position of
// a sequence).
#include "nn/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace triptych {
namespace {

struct Case {
  const char* name;
  const char* config;
  std::int64_t max_positions;
  int n_tokens;
  std::array<float, 8> cos, sin;
};

const Case kCases[] = {
    {"default",
     R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})",
     128,
     100,
     {0.0398208797F, 0.994024217F, -0.889190912F, -0.999940217F, 0.548689902F, 0.951393962F, 0.995103478F,
      0.99950999F},
     {-0.999206841F, -0.109159507F, -0.457536399F, 0.0109373853F, 0.836025953F, 0.307976574F, 0.0988383666F,
      0.0313014351F}},
    {"linear",
     R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}})",
     128,
     100,
     {0.927644372F, 0.0273409579F, -0.785933137F, 0.709037662F, 0.9695279F, 0.996938765F, 0.999693751F,
      0.999969363F},
     {-0.373464763F, 0.99962616F, 0.618311524F, 0.705170631F, 0.244980901F, 0.0781864971F, 0.0247474741F,
      0.00782655738F}},
    {"dynamic_short",
     R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}})",
     128,
     100,
     {0.0398208797F, 0.994024217F, -0.889190912F, -0.999940217F, 0.548689902F, 0.951393962F, 0.995103478F,
      0.99950999F},
     {-0.999206841F, -0.109159507F, -0.457536399F, 0.0109373853F, 0.836025953F, 0.307976574F, 0.0988383666F,
      0.0313014351F}},
    {"dynamic_long",
     R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}})",
     128,
     200,
     {-0.471625715F, 0.999050438F, -0.943955481F, -0.156035602F, 0.273686379F, 0.933299005F, 0.994566321F,
      0.999561548F},
     {-0.881798863F, -0.0435689762F, -0.33007279F, -0.987751424F, 0.961818993F, 0.359100223F, 0.104105122F,
      0.0296094716F}},
    {"yarn",
     R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}})",
     128,
     100,
     {0.0453412272F, 0.85824877F, -0.894886613F, 0.807331145F, 1.10393298F, 1.13514388F, 1.13828075F,
      1.13859451F},
     {-1.13772631F, 0.748255312F, 0.704027712F, 0.80292803F, 0.278942466F, 0.0890254453F, 0.028178202F,
      0.00891154818F}},
    {"yarn_mscale",
     R"({"rope_parameters": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "rope_theta": 50000.0, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2}})",
     128,
     100,
     {0.0435712114F, -1.09230292F, 0.740398467F, 1.06921887F, 1.09250474F, 1.09406793F, 1.09417248F,
      1.09417951F},
     {-1.09331214F, -0.0640648454F, 0.805630147F, 0.232380703F, 0.0605239496F, 0.0156589579F, 0.00404953817F,
      0.00104721321F}},
    {"llama3",
     R"({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 500000.0}})",
     128,
     100,
     {0.0398208797F, -0.00691680564F, 0.893653512F, 0.995930493F, 0.999846876F, 0.999994218F, 0.999999762F,
      1.0F},
     {-0.999206841F, 0.999976099F, 0.448757619F, 0.0901242793F, 0.0174999982F, 0.0033938149F, 0.000658139063F,
      0.00012762814F}},
};

std::unique_ptr<Backend> backend() {
  return make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt});
}

RopeAngles last_angles(ExecContext& cx, const Rope& rope, int n_tokens) {
  const std::int32_t position = n_tokens - 1;
  const RowLengths lengths{.n_tokens = n_tokens, .n_prompt = 1};
  return rope.angles(cx, {&position, 1}, {&lengths, 1});
}

TEST(Rope, AnglesEqualTheReference) {
  const auto cpu = backend();
  for (const Case& c : kCases) {
    const Json json = parse_json(c.config, "config.json");
    const Rope rope(RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, c.max_positions));
    Arena arena;
    ExecContext cx(*cpu, arena);
    const RopeAngles angles = last_angles(cx, rope, c.n_tokens);
    for (std::size_t d = 0; d < 8; ++d) {
      // The angle reaches 200; one rounding of it moves cos by 200 * 2^-24.
      EXPECT_NEAR(angles.cos.cf32()[d], c.cos[d], 3e-5F) << c.name << " " << d;
      EXPECT_NEAR(angles.sin.cf32()[d], c.sin[d], 3e-5F) << c.name << " " << d;
    }
  }
}

// The older spelling: rope_theta and rope_scaling beside each other, "type" for "rope_type".
TEST(Rope, BothSpellingsOfTheConfigurationAgree) {
  const Json older =
      parse_json(R"({"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 4.0}})", "old");
  const Json newer = parse_json(
      R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}})", "new");
  const Rope a(RopeConfig::parse(JsonView(older, "old"), 16, 10000.0, 128));
  const Rope b(RopeConfig::parse(JsonView(newer, "new"), 16, 10000.0, 128));
  std::array<float, 8> fa{};
  std::array<float, 8> fb{};
  a.inverse_frequencies(0, fa);
  b.inverse_frequencies(0, fb);
  EXPECT_EQ(fa, fb);
  EXPECT_FLOAT_EQ(fa[0], 0.25F);
}

TEST(Rope, SectionsTakeTheirAxis) {
  const Json json =
      parse_json(R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})", "config.json");
  const Rope rope(RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, 128));
  const auto cpu = backend();
  Arena arena;
  ExecContext cx(*cpu, arena);
  const std::int32_t positions[] = {3, 5, 7};  // temporal, height, width of one token
  const RowLengths lengths{.n_tokens = 1, .n_prompt = 1};
  const RopeAngles angles = rope.angles(cx, positions, {&lengths, 1});
  std::array<float, 8> inv{};
  rope.inverse_frequencies(0, inv);
  const int axis[] = {3, 3, 5, 5, 5, 7, 7, 7};
  for (std::size_t d = 0; d < 8; ++d)
    EXPECT_FLOAT_EQ(angles.cos.cf32()[d], std::cos(static_cast<float>(axis[d]) * inv[d])) << d;
}

TEST(Rope, InterleavedSectionsTakeTurns) {
  const Json json =
      parse_json(R"({"rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]}})", "config.json");
  RopeConfig config = RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, 128);
  config.mrope_interleaved = true;
  const Rope rope(config);
  const auto cpu = backend();
  Arena arena;
  ExecContext cx(*cpu, arena);
  const std::int32_t positions[] = {3, 5, 7};
  const RowLengths lengths{.n_tokens = 1, .n_prompt = 1};
  const RopeAngles angles = rope.angles(cx, positions, {&lengths, 1});
  std::array<float, 8> inv{};
  rope.inverse_frequencies(0, inv);
  const int axis[] = {3, 5, 7, 3, 5, 7, 3, 3};
  for (std::size_t d = 0; d < 8; ++d)
    EXPECT_FLOAT_EQ(angles.cos.cf32()[d], std::cos(static_cast<float>(axis[d]) * inv[d])) << d;
}

// Rows of one step, of a prompt and of answers of several lengths: each turns as it would alone.
TEST(Rope, DynamicBasesBelongToRows) {
  const Json json =
      parse_json(R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}})",
                 "config.json");
  const Rope rope(RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, 128));
  const auto cpu = backend();
  Arena arena;
  ExecContext cx(*cpu, arena);
  const std::int32_t positions[] = {126, 127, 128, 129, 5, 5};
  const RowLengths lengths[] = {{127, 100}, {128, 100}, {129, 100}, {130, 100}, {6, 300}, {6, 6}};
  const RopeAngles together = rope.angles(cx, positions, lengths);
  for (std::size_t t = 0; t < 6; ++t) {
    const RopeAngles alone = rope.angles(cx, {&positions[t], 1}, {&lengths[t], 1});
    std::array<float, 8> inv{};
    rope.inverse_frequencies(std::max(lengths[t].n_tokens, lengths[t].n_prompt), inv);
    for (std::size_t d = 0; d < 8; ++d) {
      EXPECT_EQ(together.cos.cf32()[t * 8 + d], alone.cos.cf32()[d]) << t << " " << d;
      EXPECT_EQ(together.sin.cf32()[t * 8 + d], alone.sin.cf32()[d]) << t << " " << d;
      EXPECT_EQ(alone.cos.cf32()[d], std::cos(static_cast<float>(positions[t]) * inv[d])) << t << " " << d;
    }
  }
  EXPECT_NE(together.cos.cf32()[4 * 8 + 3], together.cos.cf32()[5 * 8 + 3]) << "the longer prompt's base";
}

// What the reference fills in, and what it does not.
TEST(Rope, MissingSettingsAreTheReferences) {
  const auto parse = [](const char* text, std::int64_t max_positions = 128) {
    const Json json = parse_json(text, "config.json");
    return RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, max_positions);
  };
  // A factor of null is the ratio of the lengths; the attention factor follows from it.
  const RopeConfig yarn = parse(
      R"({"rope_parameters": {"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 32}})");
  EXPECT_EQ(yarn.factor, 4.0);
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_EQ(parse(R"({"rope_scaling": {"rope_type": "yarn", "factor": null}})").factor, 1.0)
      << "the trained length is the whole";
  const RopeConfig betas =
      parse(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 0, "beta_slow": null}})");
  EXPECT_EQ(betas.beta_fast, 32.0);
  EXPECT_EQ(betas.beta_slow, 1.0);
  // The text configuration's own trained length goes first.
  EXPECT_EQ(parse(R"({"original_max_position_embeddings": 16, "rope_scaling": {"rope_type": "yarn",
                      "factor": null, "original_max_position_embeddings": 32}})")
                .factor,
            8.0);
  // Dynamic scaling does not look at one.
  EXPECT_EQ(
      parse(R"({"rope_scaling": {"type": "dynamic", "factor": 2, "original_max_position_embeddings": 32}})")
          .original_max_positions,
      128);
  // Of two objects the older one is read.
  const RopeConfig both = parse(R"({"rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_type": "linear", "factor": 8, "rope_theta": 500.0}, "rope_theta": 900.0})");
  EXPECT_EQ(both.factor, 2.0);
  EXPECT_EQ(both.theta, 900.0);
  EXPECT_EQ(parse(R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 8}})").factor,
            8.0);
}

TEST(Rope, BadSettingsAreRefusedByKey) {
  const struct {
    const char* type;
    const char* settings;
    const char* key;
  } cases[] = {
      {"linear", "", "factor"},
      {"linear", R"(, "factor": null)", "factor"},
      {"linear", R"(, "factor": -2.0)", "factor"},
      {"linear", R"(, "factor": 0)", "factor"},
      {"linear", R"(, "factor": 1e308)", "factor"},
      {"dynamic", "", "factor"},
      {"dynamic", R"(, "factor": null)", "factor"},
      {"yarn", "", "factor"},
      {"yarn", R"(, "factor": 0)", "factor"},
      {"yarn", R"(, "factor": 2, "original_max_position_embeddings": 0)", "original_max_position_embeddings"},
      {"yarn", R"(, "factor": 2, "original_max_position_embeddings": null)",
       "original_max_position_embeddings"},
      {"yarn", R"(, "factor": 2, "beta_fast": -1)", "beta_fast"},
      {"yarn", R"(, "factor": 2, "beta_slow": -1)", "beta_slow"},
      {"yarn", R"(, "factor": 2, "attention_factor": 0)", "attention_factor"},
      {"yarn", R"(, "factor": 2, "attention_factor": -1.0)", "attention_factor"},
      {"yarn", R"(, "factor": 2, "mscale": -1)", "mscale"},
      {"yarn", R"(, "factor": 2, "mscale_all_dim": 1e308)", "mscale_all_dim"},
      {"yarn", R"(, "factor": 2, "truncate": 1)", "truncate"},
      {"llama3", R"(, "low_freq_factor": 1, "high_freq_factor": 4)", "factor"},
      {"llama3", R"(, "factor": null, "low_freq_factor": 1, "high_freq_factor": 4)", "factor"},
      {"llama3", R"(, "factor": 8, "high_freq_factor": 4)", "low_freq_factor"},
      {"llama3", R"(, "factor": 8, "low_freq_factor": 0, "high_freq_factor": 4)", "low_freq_factor"},
      {"llama3", R"(, "factor": 8, "low_freq_factor": 1, "high_freq_factor": 1)", "high_freq_factor"},
      {"default", R"(, "rope_theta": 0)", "rope_theta"},
      {"default", R"(, "rope_theta": -10000.0)", "rope_theta"},
      {"default", R"(, "rope_theta": 1e300)", "rope_theta"},
      {"default", R"(, "partial_rotary_factor": 0)", "partial_rotary_factor"},
      {"default", R"(, "partial_rotary_factor": 1.5)", "partial_rotary_factor"},
  };
  for (const auto& c : cases) {
    const Json json =
        parse_json(fmt::format(R"({{"rope_parameters": {{"rope_type": "{}"{}}}}})", c.type, c.settings), "t");
    try {
      RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, 128);
      ADD_FAILURE() << c.type << c.settings << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
      EXPECT_NE(std::string(error.what()).find(c.key), std::string::npos) << error.what();
    }
  }
  const Json two = parse_json(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", "t");
  EXPECT_THROW(RopeConfig::parse(JsonView(two, "config.json"), 2, 10000.0, 128), Error)
      << "its exponent divides by two less than the dimensions";
}

TEST(Rope, RefusesWhatItDoesNotKnow) {
  const auto parse = [](const char* text) {
    const Json json = parse_json(text, "config.json");
    RopeConfig::parse(JsonView(json, "config.json"), 16, 10000.0, 128);
  };
  EXPECT_THROW(parse(R"({"rope_scaling": {"type": "longrope", "factor": 2.0}})"), Error);
  EXPECT_THROW(parse(R"({"rope_scaling": {"type": "linear", "factor": -2.0}})"), Error);
  EXPECT_THROW(parse(R"({"rope_theta": 0})"), Error);
  EXPECT_THROW(parse(R"({"rope_scaling": {"type": "mrope", "mrope_section": [9, 9, 9]}})"), Error);
  EXPECT_THROW(parse(R"({"partial_rotary_factor": 0.1})"), Error);
}

}  // namespace
}  // namespace triptych
