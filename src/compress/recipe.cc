#include "compress/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compress/yaml_json.h"
#include "io/mapped_file.h"

namespace triptych::compress {
namespace {

constexpr std::string_view kBalanced = R"(recipe: balanced
formats: {language: int4:g128, vision: int8, lm_head: int8}
budget: {choices: [int4:g128, int4:g32, int8], samples: 64}
calibration: {samples: 128, image_token_weight: 0.1, answer_tokens: 64}
passes:
  - equalize
  - fold_residual: {alpha: auto, lambda: auto}
  - round: {feedback: 1, clip_to: 0.7, damping: 0.01}
)";
constexpr std::string_view kSmallest = R"(recipe: smallest
formats: {language: int4:g128, vision: int4:channel:asym, lm_head: int4:g128}
passes:
  - equalize
  - fold_residual: {alpha: auto, lambda: auto}
  - round: {feedback: 1, clip_to: 0.5, damping: 0.01}
)";
constexpr std::string_view kFastest = R"(recipe: fastest
formats: {language: int4:g128, vision: int8, lm_head: int4:g128}
passes:
  - equalize
  - round: {feedback: 1, clip_to: 0.7, damping: 0.01}
)";
struct Shipped {
  std::string_view name, text;
};
constexpr Shipped kShipped[] = {{"balanced", kBalanced}, {"smallest", kSmallest}, {"fastest", kFastest}};

void check_keys(const JsonView& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.members())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string list;
      for (const std::string_view name : known) list.append(list.empty() ? "" : ", ").append(name);
      fail(ErrorCode::kInvalidFile, "{}: unknown key; expected one of {}", value.path(), list);
    }
}

QuantFormat parse_format(const JsonView& value) {
  const std::string word = value.as_string();
  try {
    return QuantFormat::parse(word);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}: {}", value.path(), error.what());
  }
}

std::optional<QuantFormat> parse_format_or_auto(const JsonView& value) {
  if (value.is_string() && value.as_string() == "auto") return std::nullopt;
  return parse_format(value);
}

void read_formats(const JsonView& formats, WeightFormats& out) {
  check_keys(formats, {"language", "vision", "lm_head"});
  if (const auto v = formats.find("language")) out.language = parse_format_or_auto(*v);
  if (const auto v = formats.find("vision")) out.vision = parse_format_or_auto(*v);
  if (const auto v = formats.find("lm_head")) out.lm_head = parse_format_or_auto(*v);
}

void read_budget(const JsonView& budget, RecipeBudget& out) {
  check_keys(budget, {"bits", "bytes", "max_loss", "choices", "samples"});
  out.bits = budget.get_double("bits", 0, 1, 16);
  if (const auto bytes = budget.find("bytes"))
    out.bytes =
        bytes->is_string() ? parse_bytes(bytes->as_string(), bytes->path()) : bytes->as_double(1, 1e15);
  out.max_loss = budget.get_double("max_loss", 0, 0, 100);
  if ((out.bits > 0 ? 1 : 0) + (out.bytes > 0 ? 1 : 0) + (out.max_loss > 0 ? 1 : 0) > 1)
    budget.fail_expected("one of bits, bytes and max_loss");
  if (const auto choices = budget.find("choices")) {
    out.choices.clear();
    for (const JsonView& item : choices->items()) out.choices.push_back(parse_format(item));
    if (out.choices.empty() || out.choices.size() > 32) choices->fail_expected("1 to 32 formats");
  }
  out.n_samples = static_cast<std::size_t>(
      budget.get_int("samples", static_cast<std::int64_t>(out.n_samples), 1, 100000));
}

void read_calibration_options(const JsonView& calibration, CalibrationOptions& out) {
  check_keys(calibration, {"samples", "image_token_weight", "answer_tokens"});
  out.n_samples = calibration.get_int("samples", out.n_samples, 1, 100000);
  out.image_row_weight = static_cast<float>(
      calibration.get_double("image_token_weight", static_cast<double>(out.image_row_weight), 0, 1));
  out.max_answer_tokens = calibration.get_int("answer_tokens", out.max_answer_tokens, 1, 4096);
}

PassStep read_step(const JsonView& item) {
  std::string name;
  std::optional<JsonView> given;
  if (item.is_string()) {
    name = item.as_string();
  } else {
    const auto members = item.members();
    if (members.size() != 1) item.fail_expected("a pass, or one pass with its settings");
    name = members.front().first;
    if (!members.front().second.is_null()) given = members.front().second;
  }
  const PassInfo* info = find_pass(name);
  if (info == nullptr) {
    std::string list;
    for (const PassInfo& known : pass_infos()) list.append(list.empty() ? "" : ", ").append(known.name);
    fail(ErrorCode::kInvalidFile, "{}: there is no pass {}; expected one of {}", item.path(),
         name.substr(0, 60), list);
  }
  PassStep out{.name = name, .settings = {}};
  for (const PassParameter& p : info->parameters) out.settings[std::string(p.name)] = p.fallback;
  if (!given) return out;
  for (const auto& [key, value] : given->members()) {
    const auto known = std::find_if(info->parameters.begin(), info->parameters.end(),
                                    [&name = key](const PassParameter& p) { return p.name == name; });
    if (known == info->parameters.end())
      fail(ErrorCode::kInvalidFile, "{}: the pass {} has no such setting", value.path(), name);
    if (known->may_be_auto && value.is_string() && value.as_string() == "auto")
      out.settings[key] = std::nullopt;
    else
      out.settings[key] = value.as_double(known->min, known->max);
  }
  return out;
}

void read_passes(const JsonView& passes, std::vector<PassStep>& out) {
  out.clear();
  bool is_rounded = false;
  for (const JsonView& item : passes.items()) {
    if (out.size() >= 32) passes.fail_expected("at most 32 passes");
    PassStep step = read_step(item);
    const bool rounds = step.name == "round";
    if (rounds && is_rounded) item.fail_expected("one pass that rounds");
    if (find_pass(step.name)->follows_rounding != is_rounded && !rounds)
      item.fail_expected(is_rounded ? "this pass in front of round" : "this pass behind round");
    is_rounded = is_rounded || rounds;
    out.push_back(std::move(step));
  }
  if (!is_rounded) passes.fail_expected("a list with the pass round");
}

Recipe read(const JsonView& root, Recipe out) {
  check_keys(root, {"recipe", "formats", "budget", "calibration", "passes"});
  out.name = root.get_string("recipe", "unnamed");
  if (const auto formats = root.find("formats")) read_formats(*formats, out.formats);
  if (const auto budget = root.find("budget")) read_budget(*budget, out.budget);
  if (const auto calibration = root.find("calibration"))
    read_calibration_options(*calibration, out.calibration);
  if (const auto passes = root.find("passes")) read_passes(*passes, out.passes);
  return out;
}

std::string number(double x) { return fmt::format("{}", x); }

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

PassSettings* Recipe::settings_of(std::string_view pass) {
  for (PassStep& step : passes)
    if (step.name == pass) return &step.settings;
  return nullptr;
}

Recipe parse_recipe(std::string_view yaml, std::string_view source) {
  const Json json = parse_yaml(yaml, source);
  const JsonView root(json, std::string(source));
  if (!root.is_object())
    root.fail_expected("a map with the keys recipe, formats, budget, calibration, passes");
  Recipe base;
  if (yaml.data() != kBalanced.data()) base = shipped_recipe("balanced");
  return read(root, std::move(base));
}

std::string to_yaml(const Recipe& recipe) {
  const auto word = [](const std::optional<QuantFormat>& format) {
    return format ? format->to_string() : std::string("auto");
  };
  std::string out = "recipe: " + quoted(recipe.name) + "\n";
  out += fmt::format("formats: {{language: {}, vision: {}, lm_head: {}}}\n", word(recipe.formats.language),
                     word(recipe.formats.vision), word(recipe.formats.lm_head));
  out += "budget: {";
  if (recipe.budget.bits > 0) out += "bits: " + number(recipe.budget.bits) + ", ";
  if (recipe.budget.bytes > 0) out += "bytes: " + number(recipe.budget.bytes) + ", ";
  if (recipe.budget.max_loss > 0) out += "max_loss: " + number(recipe.budget.max_loss) + ", ";
  out += "choices: [";
  for (std::size_t i = 0; i < recipe.budget.choices.size(); ++i)
    out += (i > 0 ? ", " : "") + recipe.budget.choices[i].to_string();
  out += fmt::format("], samples: {}}}\n", recipe.budget.n_samples);
  out += fmt::format("calibration: {{samples: {}, image_token_weight: {}, answer_tokens: {}}}\npasses:\n",
                     recipe.calibration.n_samples, recipe.calibration.image_row_weight,
                     recipe.calibration.max_answer_tokens);
  for (const PassStep& step : recipe.passes) {
    out += "  - " + step.name;
    if (!step.settings.empty()) {
      out += ": {";
      bool first = true;
      for (const auto& [key, value] : step.settings) {
        out += (first ? "" : ", ") + key + ": " + (value ? number(*value) : std::string("auto"));
        first = false;
      }
      out += "}";
    }
    out += "\n";
  }
  return out;
}

const std::vector<std::string>& shipped_recipe_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> out;
    for (const Shipped& shipped : kShipped) out.emplace_back(shipped.name);
    return out;
  }();
  return kNames;
}

Recipe shipped_recipe(std::string_view name) {
  std::string list;
  for (const Shipped& shipped : kShipped) {
    if (shipped.name == name) return parse_recipe(shipped.text, shipped.name);
    list.append(list.empty() ? "" : ", ").append(shipped.name);
  }
  fail(ErrorCode::kNotFound, "there is no recipe {}; those that ship are {}", name, list);
}

Recipe read_recipe(const std::string& name_or_file) {
  for (const Shipped& shipped : kShipped)
    if (shipped.name == name_or_file) return shipped_recipe(name_or_file);
  std::error_code error;
  if (!std::filesystem::exists(name_or_file, error) && name_or_file.find_first_of("./") == std::string::npos)
    return shipped_recipe(name_or_file);  // which says what there is
  return parse_recipe(read_text_file(name_or_file, 1 << 20), name_or_file);
}

double parse_bytes(std::string_view text, std::string_view what) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},     {"B", 1},        {"KB", 1e3},        {"MB", 1e6},
                                    {"GB", 1e9}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (error == std::errc() && std::isfinite(value) && value > 0)
    for (const Unit& unit : kUnits)
      if (unit.name == rest && value * unit.bytes >= 1 && value * unit.bytes < 1e15)
        return value * unit.bytes;
  fail(ErrorCode::kInvalidArgument, "{}: expected a size such as 4.4GB, 500MB or 2GiB, got \"{}\"", what,
       text.substr(0, 60));
}

std::vector<std::unique_ptr<Pass>> make_passes(const Recipe& recipe) {
  std::vector<std::unique_ptr<Pass>> out;
  for (const PassStep& step : recipe.passes) out.push_back(find_pass(step.name)->make(step.settings));
  return out;
}

}  // namespace triptych::compress
