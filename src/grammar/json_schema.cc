// Source: JSON Schema 2020-12, and the keywords that OpenAI's page on structured outputs lists.
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "grammar/json_formats.h"
#include "grammar/json_grammar.h"
#include "grammar/regex_grammar.h"
#include "unicode/utf8.h"

namespace triptych {
namespace {

using SchemaJson = nlohmann::ordered_json;
using Node = GrammarBuilder::Node;
using Keywords = std::vector<std::string_view>;

constexpr std::uint32_t kMaxCount = 1 << 17;

// They say nothing about a value.
constexpr std::array<std::string_view, 13> kAnnotations = {
    "title",     "description", "default", "example", "examples", "deprecated", "readOnly",
    "writeOnly", "$comment",    "$schema", "$id",     "$defs",    "definitions"};

constexpr std::array<std::string_view, 7> kTypes = {"array",  "boolean", "integer", "null",
                                                    "number", "object",  "string"};

const Keywords& keywords_of(std::string_view type) {
  static const std::map<std::string_view, Keywords> all = {
      {"array", {"items", "minItems", "maxItems"}},
      {"boolean", {}},
      {"null", {}},
      {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"object", {"properties", "required", "additionalProperties"}},
      {"string", {"pattern", "format", "minLength", "maxLength"}}};
  return all.at(type);
}

template <typename List>
bool holds(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool is_known(std::string_view key) {
  static constexpr std::array<std::string_view, 6> kOfAnyType = {"type",  "enum",  "const",
                                                                 "anyOf", "allOf", "$ref"};
  return holds(kAnnotations, key) || holds(kOfAnyType, key) ||
         std::any_of(kTypes.begin(), kTypes.end(),
                     [&](std::string_view type) { return holds(keywords_of(type), key); });
}

std::string shorten(std::string text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? text : utf8::sanitize(text.substr(0, kMost)) + "...";
}

std::string shown(const SchemaJson& value) {
  return shorten(value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace));
}

std::string below(const std::string& path, std::string_view key) {
  const bool is_name = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$';
  });
  return is_name ? fmt::format("{}.{}", path, shorten(std::string(key)))
                 : fmt::format("{}[{}]", path, shown(std::string(key)));
}

std::string_view type_of(const SchemaJson& value) {
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_null()) return "null";
  return value.is_number_integer() ? "integer" : "number";
}

class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaJson& root, std::string_view where)
      : root_(root), where_(where), b_(std::string(where)), json_(b_) {}

  Grammar compile() {
    const GrammarBuilder::Rule root = rule_of("#", root_, "$");
    // Rules that a rule refers to are made after it, so that a long chain of them needs no deep stack.
    while (!pending_.empty()) {
      const Pending next = pending_.back();
      pending_.pop_back();
      b_.define(next.rule, value(*next.schema, next.path));
    }
    return b_.build(root);
  }

 private:
  struct Pending {
    GrammarBuilder::Rule rule;
    const SchemaJson* schema;
    std::string path;
  };

  [[noreturn]] void bad(const std::string& path, std::string_view what) const {
    fail(ErrorCode::kInvalidArgument, "{}: {}: {}", where_, path, what);
  }
  [[noreturn]] void unsupported(const std::string& path, std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{}: {}: {} not supported", where_, path, what);
  }

  GrammarBuilder::Rule rule_of(const std::string& pointer, const SchemaJson& schema, std::string path) {
    if (const auto found = rules_.find(pointer); found != rules_.end()) return found->second;
    const GrammarBuilder::Rule rule = b_.declare(path);
    rules_.emplace(pointer, rule);
    pending_.push_back({rule, &schema, std::move(path)});
    return rule;
  }

  // Every value of a schema.
  Node value(const SchemaJson& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) bad(path, "the schema false lets no value through");
      return json_.value();
    }
    if (!schema.is_object()) bad(path, fmt::format("expected a schema (an object), got {}", shown(schema)));
    Keywords given;
    for (const auto& [key, ignored] : schema.items()) {
      if (!is_known(key)) unsupported(path, fmt::format("keyword \"{}\" is", shorten(key)));
      if (!holds(kAnnotations, key)) given.push_back(key);
    }
    if (given.empty()) return json_.value();
    if (holds(given, "$ref")) {
      refuse_beside(given, "$ref", {}, path);
      return reference(schema.at("$ref"), below(path, "$ref"));
    }
    if (holds(given, "anyOf")) {
      refuse_beside(given, "anyOf", {}, path);
      return any_of(schema.at("anyOf"), below(path, "anyOf"));
    }
    if (holds(given, "allOf")) {
      refuse_beside(given, "allOf", {}, path);
      return all_of(schema.at("allOf"), below(path, "allOf"));
    }
    if (holds(given, "const")) {
      refuse_beside(given, "const", {"type"}, path);
      return constants(SchemaJson::array({schema.at("const")}), schema, below(path, "const"));
    }
    if (holds(given, "enum")) {
      refuse_beside(given, "enum", {"type"}, path);
      return constants(schema.at("enum"), schema, below(path, "enum"));
    }
    std::vector<Node> by_type;
    for (const std::string_view type : types_of(schema, given, path))
      by_type.push_back(of_type(type, schema, path));
    return b_.choice(by_type);
  }

  void refuse_beside(const Keywords& given, std::string_view keyword, const Keywords& fitting,
                     const std::string& path) const {
    for (const std::string_view other : given)
      if (other != keyword && !holds(fitting, other))
        unsupported(path, fmt::format("\"{}\" beside \"{}\" is", other, keyword));
  }

  Keywords read_types(const SchemaJson& type, const std::string& path) const {
    Keywords out;
    const auto add = [&](const SchemaJson& one) {
      const auto found = one.is_string()
                             ? std::find(kTypes.begin(), kTypes.end(), one.get_ref<const std::string&>())
                             : kTypes.end();
      if (found == kTypes.end()) bad(path, fmt::format("expected the name of a type, got {}", shown(one)));
      if (!holds(out, *found)) out.push_back(*found);
    };
    if (type.is_array())
      for (const SchemaJson& one : type) add(one);
    else
      add(type);
    if (out.empty()) bad(path, "expected at least one type");
    // A whole number is a number: said twice it would only be read in two ways.
    if (holds(out, "number")) std::erase(out, "integer");
    return out;
  }

  // Without "type": the one type that all keywords speak of. The schema lets more through, and what is
  // written is let through all the same.
  Keywords types_of(const SchemaJson& schema, const Keywords& given, const std::string& path) const {
    if (holds(given, "type")) return read_types(schema.at("type"), below(path, "type"));
    for (const std::string_view type : {"object", "array", "string", "number"})
      if (std::all_of(given.begin(), given.end(),
                      [&](std::string_view key) { return holds(keywords_of(type), key); }))
        return {type};
    unsupported(path, fmt::format("\"{}\" beside \"{}\" without a \"type\" is", given[0], given[1]));
  }

  Node of_type(std::string_view type, const SchemaJson& schema, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "boolean") return b_.words({"true", "false"});
    if (type == "null") return b_.literal("null");
    return number(type == "integer", schema, path);
  }

  Node constants(const SchemaJson& values, const SchemaJson& schema, const std::string& path) {
    if (!values.is_array() || values.empty()) bad(path, "expected a list of values");
    std::optional<Keywords> types;
    if (const auto type = schema.find("type"); type != schema.end()) types = read_types(*type, path);
    std::vector<std::string> texts;
    for (const SchemaJson& one : values) {
      const std::string_view type = type_of(one);
      if (!types || holds(*types, type) || (type == "integer" && holds(*types, "number")))
        texts.push_back(one.dump());
    }
    if (texts.empty()) bad(path, "no value is of the type that is asked for");
    return b_.words(std::move(texts));
  }

  Node any_of(const SchemaJson& list, const std::string& path) {
    if (!list.is_array() || list.empty()) bad(path, "expected a list of schemas");
    std::vector<Node> out;
    for (std::size_t i = 0; i < list.size(); ++i)
      out.push_back(value(list[i], fmt::format("{}[{}]", path, i)));
    return b_.choice(out);
  }

  Node all_of(const SchemaJson& list, const std::string& path) {
    if (!list.is_array() || list.empty()) bad(path, "expected a list of schemas");
    if (list.size() > 1) unsupported(path, "\"allOf\" of more than one schema is");
    return value(list[0], path + "[0]");
  }

  // A JSON pointer within the document (RFC 6901), percent-encoded or not.
  Node reference(const SchemaJson& ref, const std::string& path) {
    if (!ref.is_string()) bad(path, fmt::format("expected a string, got {}", shown(ref)));
    const std::string& text = ref.get_ref<const std::string&>();
    if (text != "#" && !text.starts_with("#/"))
      unsupported(path,
                  fmt::format("\"{}\" (only \"#\" and \"#/...\", within the schema, are) is", shorten(text)));
    const SchemaJson* at = &root_;
    for (std::size_t from = 1; from < text.size();) {
      const std::size_t end = std::min(text.find('/', from + 1), text.size());
      const std::string step = decoded(std::string_view(text).substr(from + 1, end - from - 1));
      at = child(*at, step);
      if (at == nullptr) bad(path, fmt::format("\"{}\" leads nowhere", shorten(text)));
      from = end;
    }
    return b_.call(rule_of(text, *at, shorten(text)));
  }

  // Members of an object are found one after the other; of those that are referred into, by an index.
  const SchemaJson* child(const SchemaJson& parent, const std::string& step) {
    if (parent.is_object()) {
      const auto [place, is_new] = indexes_.try_emplace(&parent);
      if (is_new)
        for (const auto& [key, member] : parent.items()) place->second.emplace(key, &member);
      const auto found = place->second.find(step);
      return found == place->second.end() ? nullptr : found->second;
    }
    std::size_t index = 0;
    const auto end = std::from_chars(step.data(), step.data() + step.size(), index);
    if (!parent.is_array() || end.ec != std::errc() || end.ptr != step.data() + step.size()) return nullptr;
    return index < parent.size() ? &parent[index] : nullptr;
  }

  static std::string decoded(std::string_view step) {
    std::string out;
    for (std::size_t i = 0; i < step.size(); ++i) {
      unsigned byte = 0;
      if (step[i] == '%' && i + 2 < step.size() &&
          std::from_chars(step.data() + i + 1, step.data() + i + 3, byte, 16).ptr == step.data() + i + 3) {
        out.push_back(static_cast<char>(byte));
        i += 2;
      } else {
        out.push_back(step[i]);
      }
    }
    std::string text;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const char next = out[i] == '~' && i + 1 < out.size() ? out[i + 1] : '\0';
      text.push_back(next == '1' ? '/' : out[i]);
      if (next == '0' || next == '1') ++i;
    }
    return text;
  }

  std::optional<std::uint32_t> count(const SchemaJson& schema, const char* key,
                                     const std::string& path) const {
    const auto found = schema.find(key);
    if (found == schema.end()) return std::nullopt;
    const double n = found->is_number() ? found->get<double>() : -1;
    if (!(n >= 0 && n <= kMaxCount) || n != static_cast<double>(static_cast<std::uint32_t>(n)))
      bad(below(path, key),
          fmt::format("expected a whole number from 0 to {}, got {}", kMaxCount, shown(*found)));
    return static_cast<std::uint32_t>(n);
  }

  Node array(const SchemaJson& schema, const std::string& path) {
    const auto items = schema.find("items");
    const std::uint32_t min = count(schema, "minItems", path).value_or(0);
    const auto max = count(schema, "maxItems", path);
    if (max && *max < min) bad(path, "\"minItems\" is more than \"maxItems\"");
    const Node element = items == schema.end() ? json_.value() : value(*items, below(path, "items"));
    return json_.array_of(b_.shared(below(path, "items"), element), min, max);
  }

  Node string(const SchemaJson& schema, const std::string& path) {
    const auto pattern = schema.find("pattern");
    const auto format = schema.find("format");
    const auto min = count(schema, "minLength", path);
    const auto max = count(schema, "maxLength", path);
    if (pattern != schema.end() && format != schema.end())
      unsupported(path, "\"format\" beside \"pattern\" is");
    const char* shape = pattern != schema.end() ? "pattern" : format != schema.end() ? "format" : nullptr;
    if (shape == nullptr) {
      if (max && *max < min.value_or(0)) bad(path, "\"minLength\" is more than \"maxLength\"");
      return !min && !max ? json_.string() : json_.string(min.value_or(0), max);
    }
    if (min || max)
      unsupported(path, fmt::format("\"{}\" beside \"{}\" is", min ? "minLength" : "maxLength", shape));
    const SchemaJson& text = schema.at(shape);
    const std::string place = below(path, shape);
    if (!text.is_string()) bad(place, fmt::format("expected a string, got {}", shown(text)));
    std::string_view regex = text.get_ref<const std::string&>();
    if (pattern == schema.end()) {
      regex = pattern_of_format(regex);
      if (regex.empty())
        unsupported(place, fmt::format("format {} (these are: {}) is", shown(text), known_formats()));
    }
    const std::string where = fmt::format("{}: {}", where_, place);
    return json_.quoted(add_regex(
        b_, regex,
        {.where = where, .searches = pattern != schema.end(), .characters = [this](const CharacterSet& set) {
           return json_.character_of(set);
         }}));
  }

  std::optional<NumberLimit> limit(const SchemaJson& schema, const char* key, const std::string& path) const {
    const auto found = schema.find(key);
    if (found == schema.end()) return std::nullopt;
    if (!found->is_number()) bad(below(path, key), fmt::format("expected a number, got {}", shown(*found)));
    const auto decimal = Decimal::parse(found->dump());
    if (!decimal)
      unsupported(
          below(path, key),
          fmt::format("a limit with more than {} digits before or behind the point is", Decimal::kMaxDigits));
    return NumberLimit{*decimal, std::string_view(key).substr(0, 9) != "exclusive"};
  }

  Node number(bool is_whole, const SchemaJson& schema, const std::string& path) {
    const NumberRange range = {
        .low = tighter(limit(schema, "minimum", path), limit(schema, "exclusiveMinimum", path),
                       "exclusiveMinimum", path),
        .high = tighter(limit(schema, "maximum", path), limit(schema, "exclusiveMaximum", path),
                        "exclusiveMaximum", path),
        .is_whole = is_whole};
    if (const auto divisor = schema.find("multipleOf"); divisor != schema.end()) {
      if (range.low || range.high) unsupported(path, "\"multipleOf\" beside a limit is");
      return multiples(is_whole, *divisor, below(path, "multipleOf"));
    }
    if (range.low || range.high) return json_.number(range);
    return is_whole ? json_.integer() : json_.number();
  }

  std::optional<NumberLimit> tighter(const std::optional<NumberLimit>& a, const std::optional<NumberLimit>& b,
                                     const char* key, const std::string& path) const {
    if (a && b) unsupported(path, fmt::format("\"{}\" beside the limit that is inclusive is", key));
    return a ? a : b;
  }

  Node multiples(bool is_whole, const SchemaJson& divisor, const std::string& path) {
    const auto decimal = divisor.is_number() ? Decimal::parse(divisor.dump()) : std::nullopt;
    if (!decimal || decimal->is_negative || decimal->is_zero())
      bad(path, fmt::format("expected a number above 0, got {}", shown(divisor)));
    if (decimal->is_whole() && decimal->whole.size() <= 4)
      if (const auto n = static_cast<std::uint32_t>(std::stoul(decimal->whole));
          n <= JsonGrammar::kMaxDivisor)
        return json_.multiple_of(n);
    // 0.1, 0.01 ...
    const std::string& fraction = decimal->fraction;
    if (!is_whole && decimal->whole == "0" && fraction.back() == '1' &&
        fraction.find_first_not_of('0') == fraction.size() - 1)
      return json_.with_fraction_digits(static_cast<std::uint32_t>(fraction.size()));
    unsupported(path, fmt::format("{} (whole numbers up to {}, and 0.1, 0.01 ... for a \"number\", are) is",
                                  shown(divisor), JsonGrammar::kMaxDivisor));
  }

  Node object(const SchemaJson& schema, const std::string& path) {
    std::set<std::string> required;
    if (const auto list = schema.find("required"); list != schema.end()) {
      if (!list->is_array()) bad(below(path, "required"), "expected a list of names");
      for (const SchemaJson& name : *list) {
        if (!name.is_string())
          bad(below(path, "required"), fmt::format("expected a name, got {}", shown(name)));
        required.insert(name.get<std::string>());
      }
    }
    std::vector<JsonGrammar::Member> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, Node content) {
      const Node key = b_.literal(SchemaJson(name).dump());
      members.push_back({b_.shared(below(path, name), json_.member(key, content)), required.erase(name) > 0});
      names.push_back(name);
    };
    const auto properties = schema.find("properties");
    if (properties != schema.end()) {
      const std::string place = below(path, "properties");
      if (!properties->is_object()) bad(place, "expected an object");
      for (const auto& [name, content] : properties->items()) add(name, value(content, below(place, name)));
    }
    const std::optional<Node> others = other_values(schema, properties != schema.end(), path);
    for (const std::string& name : std::set<std::string>(required)) {
      if (!others)
        bad(below(path, "required"), fmt::format("\"{}\" is not among the properties", shorten(name)));
      add(name, *others);
    }
    std::optional<Node> other;
    if (others) other = b_.shared("another member", json_.member(json_.other_key(names), *others));
    return json_.object_of(members, other);
  }

  // Of members that are not among the properties. Where nothing is said there are none beside properties: the
  // schema lets them through, but nobody who names properties wants a model to make up more.
  std::optional<Node> other_values(const SchemaJson& schema, bool has_properties, const std::string& path) {
    const auto given = schema.find("additionalProperties");
    if (given == schema.end()) return has_properties ? std::nullopt : std::optional(json_.value());
    if (given->is_boolean() && !given->get<bool>()) return std::nullopt;
    return b_.shared(below(path, "additionalProperties"), value(*given, below(path, "additionalProperties")));
  }

  const SchemaJson& root_;
  std::string_view where_;
  GrammarBuilder b_;
  JsonGrammar json_;
  std::map<std::string, GrammarBuilder::Rule> rules_;  // by pointer
  std::vector<Pending> pending_;
  std::map<const SchemaJson*, std::map<std::string, const SchemaJson*>> indexes_;
};

}  // namespace

Grammar compile_json_schema(std::string_view schema, std::string_view where) {
  if (schema.size() > kMaxSchemaBytes)
    fail(ErrorCode::kInvalidArgument, "{}: expected a schema of at most {} bytes, got {}", where,
         kMaxSchemaBytes, schema.size());
  try {
    parse_json_unique_keys(schema, where);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
  // Again, in the order of the text: that of the properties is the order in which they are written.
  const SchemaJson root = SchemaJson::parse(schema);
  return SchemaCompiler(root, where).compile();
}

}  // namespace triptych
