// map, select, reject and their kin: lazy, as jinja2's generators are. And the two filters on single values,
// default and attr.
#include <algorithm>
#include <utility>

#include "jinja/builtins.h"

namespace triptych::jinja {
namespace {

/// State that map and select share: arguments are looked at when the first item is asked for, and only if the
/// input is true, which is when jinja2 does it.
struct LazyFilter : IteratorObject {
  Value input;
  Arguments arguments;
  std::shared_ptr<IteratorObject> source;
  bool is_started = false;

  bool start(Runtime& runtime) {
    if (is_started) return source != nullptr;
    is_started = true;
    if (!runtime.truth(input)) return false;
    prepare(runtime);
    source = runtime.iterate(input);
    return true;
  }
  virtual void prepare(Runtime& runtime) = 0;
};

Value make_lazy(Runtime& runtime, std::shared_ptr<LazyFilter> filter, const Value& input,
                Arguments& arguments) {
  std::uint32_t nesting = input.nesting();
  for (const Value& value : arguments.positional) nesting = std::max(nesting, value.nesting());
  for (const auto& [name, value] : arguments.named) nesting = std::max(nesting, value.nesting());
  filter->nesting = nesting + 1;
  filter->input = input;
  filter->arguments = std::move(arguments);
  return runtime.iterator(std::move(filter));
}

std::string name_argument(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_string())
    fail(ErrorCode::kInvalidArgument, "{} name must be a string, got '{}'", what, type_name(value));
  return std::string(value.view());
}

struct MapFilter final : LazyFilter {
  std::string name;  // of the filter; empty: look up an attribute
  std::vector<Value> path;
  std::optional<Value> fallback;

  void prepare(Runtime& runtime) override {
    if (arguments.positional.empty()) {
      const Bound bound("map", arguments, {"attribute", "default"});
      if (!bound.has(0)) fail(ErrorCode::kInvalidArgument, "map requires a filter argument");
      path = attribute_path(runtime, bound.at(0));
      if (bound.has_value(1)) fallback = bound.at(1);
      return;
    }
    name = name_argument(arguments.positional.front(), "filter");
    arguments.positional.erase(arguments.positional.begin());
  }

  bool next(Runtime& runtime, Value& item) override {
    const DepthGuard guard(runtime.budget());
    if (!start(runtime) || !source->next(runtime, item)) return false;
    if (name.empty()) {
      item = follow_path(runtime, item, path, fallback ? &*fallback : nullptr);
    } else {
      Arguments copy = arguments;
      item = runtime.call_filter(name, item, copy);
    }
    return true;
  }
};

struct SelectFilter final : LazyFilter {
  bool keeps = true;  // false: reject
  bool by_attribute = false;
  std::vector<Value> path;
  std::string name;  // of the test; empty: truth

  void prepare(Runtime& runtime) override {
    std::size_t used = 0;
    if (by_attribute) {
      if (arguments.positional.empty())
        fail(ErrorCode::kInvalidArgument, "Missing parameter for attribute name");
      path = attribute_path(runtime, arguments.positional[used++]);
    }
    if (used < arguments.positional.size()) name = name_argument(arguments.positional[used++], "test");
    arguments.positional.erase(arguments.positional.begin(),
                               arguments.positional.begin() + static_cast<std::ptrdiff_t>(used));
  }

  bool next(Runtime& runtime, Value& item) override {
    const DepthGuard guard(runtime.budget());
    if (!start(runtime)) return false;
    while (source->next(runtime, item)) {
      const Value tested = by_attribute ? follow_path(runtime, item, path) : item;
      Arguments copy = arguments;
      const bool holds = name.empty() ? runtime.truth(tested) : runtime.call_test(name, tested, copy);
      if (holds == keeps) return true;
    }
    return false;
  }
};

Value filter_map(Runtime& runtime, const Value& input, Arguments& arguments) {
  return make_lazy(runtime, std::make_shared<MapFilter>(), input, arguments);
}

template <bool kKeeps, bool kByAttribute>
Value filter_select(Runtime& runtime, const Value& input, Arguments& arguments) {
  auto filter = std::make_shared<SelectFilter>();
  filter->keeps = kKeeps;
  filter->by_attribute = kByAttribute;
  return make_lazy(runtime, std::move(filter), input, arguments);
}

Value filter_default(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.truth(runtime, 1, false) && !runtime.truth(input))) return input;
  return bound.has(0) ? bound.at(0) : runtime.string("");
}

Value filter_attr(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  require_defined(input);
  const std::string_view name = bound.text(0).view();
  if (auto found = runtime.find_attribute(input, name)) return *std::move(found);
  return runtime.undefined(fmt::format("'{} object' has no attribute '{}'", type_name(input), name));
}

struct Entry {
  std::string_view name;
  FilterBody body;
};
constexpr Entry kFilters[] = {
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"map", filter_map},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
};

}  // namespace

FilterBody find_selection_filter(std::string_view name) {
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja
