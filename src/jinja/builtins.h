// The tables of filters, tests, methods and globals.
#pragma once

#include <string_view>

#include "jinja/runtime.h"

namespace triptych::jinja {

using FilterBody = Value (*)(Runtime& runtime, const Value& input, Arguments& arguments);
using TestBody = bool (*)(Runtime& runtime, const Value& input, Arguments& arguments);

/// Null when there is none of this name.
FilterBody find_filter(std::string_view name);
TestBody find_test(std::string_view name);
/// Public method of a built-in type that ImmutableSandboxedEnvironment lets through.
FunctionObject::Body find_method(const Value& object, std::string_view name);

// Parts of find_filter and find_method, one for each file.
FilterBody find_text_filter(std::string_view name);
FilterBody find_number_filter(std::string_view name);
FilterBody find_sequence_filter(std::string_view name);
FilterBody find_selection_filter(std::string_view name);
FunctionObject::Body find_text_method(std::string_view name);
FunctionObject::Body find_split_method(std::string_view name);
FunctionObject::Body find_text_property_method(std::string_view name);
FunctionObject::Body find_container_method(const Value& object, std::string_view name);

/// Names every template sees: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
void add_globals(Runtime& runtime, DictObject& globals);

/// Binds arguments to parameters by position and by name, as a Python function does.
class Bound {
 public:
  /// A parameter named "" can only be given by position. Throws for too many, unknown, repeated or missing
  /// arguments.
  Bound(std::string_view function, Arguments& arguments, std::initializer_list<std::string_view> parameters,
        std::size_t n_required = 0);

  /// Null when not given.
  const Value* get(std::size_t i) const { return values_[i]; }
  bool has(std::size_t i) const { return values_[i] != nullptr; }
  bool has_value(std::size_t i) const { return has(i) && !values_[i]->is_none(); }
  const Value& at(std::size_t i) const { return *values_[i]; }
  bool truth(Runtime& runtime, std::size_t i, bool fallback) const;
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  /// A str; throws for anything else.
  const MarkedString& text(std::size_t i) const;

 private:
  [[noreturn]] void fail_type(std::size_t i, std::string_view expected) const;
  std::string_view function_;
  static constexpr std::size_t kMax = 6;
  const Value* values_[kMax] = {};
};

}  // namespace triptych::jinja
