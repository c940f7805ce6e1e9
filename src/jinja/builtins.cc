// Argument binding and the lookup over all tables.
#include "jinja/builtins.h"

#include <algorithm>

namespace triptych::jinja {

Bound::Bound(std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t n_required)
    : function_(function) {
  TRIPTYCH_CHECK(parameters.size() <= kMax);
  if (arguments.positional.size() > parameters.size())
    fail(ErrorCode::kInvalidArgument, "{}() takes at most {} argument(s), got {}", function,
         parameters.size(), arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end() || name.empty())
      fail(ErrorCode::kInvalidArgument, "{}() got an unexpected keyword argument '{}'", function, name);
    const auto i = static_cast<std::size_t>(it - parameters.begin());
    if (values_[i] != nullptr)
      fail(ErrorCode::kInvalidArgument, "{}() got multiple values for argument '{}'", function, name);
    values_[i] = &value;
  }
  for (std::size_t i = 0; i < n_required; ++i)
    if (values_[i] == nullptr)
      fail(ErrorCode::kInvalidArgument, "{}() missing required argument {} '{}'", function, i + 1,
           *(parameters.begin() + i));
}

bool Bound::truth(Runtime& runtime, std::size_t i, bool fallback) const {
  return has(i) ? runtime.truth(*values_[i]) : fallback;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t fallback) const {
  if (!has(i)) return fallback;
  if (!values_[i]->is_integral()) fail_type(i, "an integer");
  return values_[i]->as_int();
}

const MarkedString& Bound::text(std::size_t i) const {
  if (!values_[i]->is_string()) fail_type(i, "a string");
  return values_[i]->text();
}

void Bound::fail_type(std::size_t i, std::string_view expected) const {
  require_defined(*values_[i]);
  fail(ErrorCode::kInvalidArgument, "{}() argument {}: expected {}, got '{}'", function_, i + 1, expected,
       type_name(*values_[i]));
}

FilterBody find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_sequence_filter, find_selection_filter, find_number_filter})
    if (const FilterBody body = find(name)) return body;
  return nullptr;
}

FunctionObject::Body find_method(const Value& object, std::string_view name) {
  if (!object.is_string()) return find_container_method(object, name);
  for (const auto find : {find_text_method, find_split_method, find_text_property_method})
    if (const FunctionObject::Body body = find(name)) return body;
  return nullptr;
}

}  // namespace triptych::jinja
