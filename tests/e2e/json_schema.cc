#include "e2e/json_schema.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "support/source_dir.h"

namespace triptych::test {
namespace {

using nlohmann::json;

class Checker {
 public:
  explicit Checker(const json& root) : root_(root) {}

  std::string problem(const json& value, const json& schema, const std::string& path) const {
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string found = by_keyword(value, schema, keyword, rule, path);
      if (!found.empty()) return found;
    }
    return {};
  }

 private:
  static bool has_type(const json& value, const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
                               : type == "null" && value.is_null();
  }

  std::string by_keyword(const json& value, const json& schema, const std::string& keyword, const json& rule,
                         const std::string& path) const {
    static const std::set<std::string> kNotes = {"$schema", "$id", "title", "$defs"};
    if (kNotes.count(keyword) != 0) return {};
    if (keyword == "$ref") {
      const std::string target = rule.get<std::string>().substr(1);
      return problem(value, root_.at(json::json_pointer(target)), path);
    }
    if (keyword == "type") {
      for (const json& type : rule.is_array() ? rule : json::array({rule}))
        if (has_type(value, type.get<std::string>())) return {};
      return path + ": expected " + rule.dump() + ", got " + value.dump().substr(0, 80);
    }
    if (keyword == "const") return value == rule ? "" : path + ": expected " + rule.dump();
    if (keyword == "enum") {
      for (const json& one : rule)
        if (value == one) return {};
      return path + ": " + value.dump() + " is not one of " + rule.dump();
    }
    if (keyword == "minimum")
      return !value.is_number() || value >= rule ? ""
                                                 : path + ": " + value.dump() + " is below " + rule.dump();
    if (keyword == "required") {
      for (const json& name : rule)
        if (value.is_object() && !value.contains(name.get<std::string>()))
          return path + ": no " + name.dump();
      return {};
    }
    if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string found = problem(value[i], rule, path + "[" + std::to_string(i) + "]");
        if (!found.empty()) return found;
      }
      return {};
    }
    if (keyword == "properties") {
      for (const auto& [name, sub] : rule.items()) {
        if (!value.is_object() || !value.contains(name)) continue;
        const std::string found = problem(value[name], sub, path + "." + name);
        if (!found.empty()) return found;
      }
      return {};
    }
    if (keyword == "additionalProperties") {
      if (!value.is_object()) return {};
      for (const auto& [name, member] : value.items()) {
        if (schema.contains("properties") && schema["properties"].contains(name)) continue;
        if (rule.is_boolean()) return path + ": member \"" + name + "\" is not in the schema";
        const std::string found = problem(member, rule, path + "." + name);
        if (!found.empty()) return found;
      }
      return {};
    }
    if (keyword == "oneOf") {
      int n = 0;
      for (const json& one : rule) n += problem(value, one, path).empty() ? 1 : 0;
      return n == 1 ? "" : path + ": " + std::to_string(n) + " of oneOf fit";
    }
    return path + ": the test does not know the keyword " + keyword;
  }

  const json& root_;
};

}  // namespace

std::string schema_problem(const json& value, const json& schema) {
  return Checker(schema).problem(value, schema, "$");
}

std::string document_problem(const json& document) {
  if (!document.is_object() || !document.contains("schema")) return "no member \"schema\"";
  std::string name = document["schema"];  // "triptych.run/1"
  const std::string start = "triptych.";
  if (!name.starts_with(start) || name.find('/') == std::string::npos) return "schema " + name;
  name = name.substr(start.size());
  name[name.find('/')] = '.';
  const auto file = std::filesystem::path(source_dir()) / "docs/schemas" / (name + ".schema.json");
  std::ifstream in(file);
  if (!in) return file.string() + " is missing";
  return schema_problem(document, json::parse(in));
}

}  // namespace triptych::test
