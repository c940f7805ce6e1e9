// Methods of list, tuple, dict and range that do not change them; ImmutableSandboxedEnvironment forbids the
// others.
#include <algorithm>

#include "jinja/builtins.h"

namespace triptych::jinja {
namespace {

Value sequence_index(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"", "", ""}, 1);
  const auto length = *runtime.length(self);
  const auto place = [&](std::size_t i, std::int64_t fallback) {
    std::int64_t at = bound.integer(i, fallback);
    return at < 0 ? std::max<std::int64_t>(0, at + length) : std::min(at, length);
  };
  const std::int64_t stop = place(2, length);
  for (std::int64_t i = place(1, 0); i < stop; ++i)
    if (runtime.equal(runtime.get_item(self, Value::integer(i)), bound.at(0))) return Value::integer(i);
  fail(ErrorCode::kInvalidArgument, "the value is not in the {}", type_name(self));
}

Value sequence_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {""}, 1);
  std::int64_t n = 0;
  for (const Value& item : runtime.to_vector(self)) n += runtime.equal(item, bound.at(0)) ? 1 : 0;
  return Value::integer(n);
}

/// Containers do not change, so that a copy may be the same object.
Value copy(Runtime&, const Value& self, Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;
}

Value dict_get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"", ""}, 1);
  if (const Value* value = runtime.dict_find(self.dict(), bound.at(0))) return *value;
  return bound.has(1) ? bound.at(1) : Value::none();
}

template <DictViewObject::Kind kKind>
Value dict_view(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("dict view", arguments, {});
  auto view = std::make_shared<DictViewObject>();
  view->dict = self;
  view->kind = kKind;
  view->nesting = self.nesting() + 1;
  return runtime.object(Type::kDictView, std::move(view), sizeof(DictViewObject));
}

struct Entry {
  std::string_view name;
  FunctionObject::Body body;
};
constexpr Entry kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<DictViewObject::Kind::kItems>},
    {"keys", dict_view<DictViewObject::Kind::kKeys>},
    {"values", dict_view<DictViewObject::Kind::kValues>},
    {"copy", copy},
};

}  // namespace

FunctionObject::Body find_container_method(const Value& object, std::string_view name) {
  if (object.is_dict()) {
    for (const Entry& entry : kDictMethods)
      if (entry.name == name) return entry.body;
    return nullptr;
  }
  if (!object.is_sequence() && !object.is(Type::kRange)) return nullptr;
  if (name == "index") return sequence_index;
  if (name == "count") return sequence_count;
  if (name == "copy" && object.is(Type::kList)) return copy;
  return nullptr;
}

}  // namespace triptych::jinja
