// The part of JSON Schema (draft 2020-12) that docs/schemas uses.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace triptych::test {

/// Where and why `value` is not as `schema` says; empty: it is. Stricter than the draft in one point: 5.0 is
/// no integer. A keyword that is not known here is a problem, too.
std::string schema_problem(const nlohmann::json& value, const nlohmann::json& schema);

/// The same with the schema in docs/schemas that the document names.
std::string document_problem(const nlohmann::json& document);

}  // namespace triptych::test
