// Making values, iterating and calling.
#include "jinja/runtime.h"

#include <algorithm>

#include "jinja/builtins.h"
#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

struct ValuesIterator final : IteratorObject {
  std::vector<Value> items;
  std::size_t position = 0;
  bool next(Runtime& runtime, Value& item) override {
    if (position >= items.size()) return false;
    runtime.budget().charge(1);
    item = items[position++];
    return true;
  }
};

/// List, tuple, range, dict or dict view, walked in place.
struct ContainerIterator final : IteratorObject {
  Value container;
  std::int64_t position = 0;

  bool next(Runtime& runtime, Value& item) override {
    runtime.budget().charge(1);
    const auto i = static_cast<std::size_t>(position);
    switch (container.type()) {
      case Type::kList:
      case Type::kTuple:
        if (i >= container.items().size()) return false;
        item = container.items()[i];
        break;
      case Type::kRange: {
        const auto& range = container.as<RangeObject>();
        if (position >= range.length) return false;
        item = Value::integer(range.at(position));
        break;
      }
      case Type::kDict:
        if (i >= container.dict().size()) return false;
        item = container.dict().entries()[i].first;
        break;
      case Type::kDictView: {
        const auto& view = container.as<DictViewObject>();
        const auto& entries = view.dict.dict().entries();
        if (i >= entries.size()) return false;
        if (view.kind == DictViewObject::Kind::kItems)
          item = runtime.tuple({entries[i].first, entries[i].second});
        if (view.kind == DictViewObject::Kind::kKeys) item = entries[i].first;
        if (view.kind == DictViewObject::Kind::kValues) item = entries[i].second;
        break;
      }
      default:
        return false;
    }
    ++position;
    return true;
  }
};

struct StringIterator final : IteratorObject {
  Value text;
  std::size_t position = 0;
  bool next(Runtime& runtime, Value& item) override {
    if (position >= text.view().size()) return false;
    runtime.budget().charge(1);
    const std::size_t begin = position;
    utf8::next_bounded(text.view(), position);
    item = runtime.string(text.text().slice(begin, position));
    return true;
  }
};

}  // namespace

Value Runtime::string(MarkedString text, bool is_markup) {
  budget_.check_text_size(text.size());
  budget_.charge_text(text.size());
  return make_string(&budget_, std::move(text), is_markup);
}

Value Runtime::sequence(Type type, std::vector<Value> items) {
  budget_.charge(1 + items.size() / 4);
  auto object = std::make_shared<SequenceObject>();
  object->charge_to(&budget_, sizeof(SequenceObject) + items.capacity() * sizeof(Value));
  std::uint32_t nesting = 0;
  for (const Value& item : items) nesting = std::max(nesting, item.nesting());
  object->nesting = nesting + 1;
  if (object->nesting > budget_.limits().max_nesting)
    fail(ErrorCode::kInvalidArgument, "lists nested deeper than {} levels", budget_.limits().max_nesting);
  object->items = std::move(items);
  return Value(type, std::move(object));
}

Value Runtime::list(std::vector<Value> items) { return sequence(Type::kList, std::move(items)); }
Value Runtime::tuple(std::vector<Value> items) { return sequence(Type::kTuple, std::move(items)); }

Value Runtime::undefined(std::string message) {
  return Value::undefined(make_string(&budget_, std::move(message)).object());
}

Value Runtime::object(Type type, std::shared_ptr<Object> object, std::size_t bytes) {
  budget_.charge(1);
  object->charge_to(&budget_, bytes);
  if (object->nesting > budget_.limits().max_nesting)
    fail(ErrorCode::kInvalidArgument, "values nested deeper than {} levels", budget_.limits().max_nesting);
  return Value(type, std::move(object));
}

Value Runtime::function(std::string name, FunctionObject::Body body, Value self) {
  auto made = std::make_shared<FunctionObject>();
  made->name = std::move(name);
  made->body = body;
  made->nesting = self.nesting() + 1;
  made->self = std::move(self);
  return object(Type::kFunction, std::move(made), sizeof(FunctionObject));
}

Value Runtime::iterator(std::shared_ptr<IteratorObject> made) {
  return object(Type::kIterator, std::move(made), 128);
}

Value Runtime::make_namespace(std::shared_ptr<NamespaceObject> made) {
  made->nesting = 1;
  namespaces_.push_back(made);
  return object(Type::kNamespace, std::move(made), sizeof(NamespaceObject) + sizeof(made));
}

void Runtime::clear_namespaces() {
  for (const auto& entry : namespaces_) entry->attributes.clear();
  namespaces_.clear();
}

void Runtime::dict_set(DictObject& dict, const Value& key, Value value) {
  check_hashable(key);
  budget_.charge(1 + (key.is_string() ? key.view().size() / 32 : dict.size()));
  const std::uint32_t nesting = std::max(key.nesting(), value.nesting()) + 1;
  if (nesting > budget_.limits().max_nesting)
    fail(ErrorCode::kInvalidArgument, "dictionaries nested deeper than {} levels",
         budget_.limits().max_nesting);
  dict.nesting = std::max(dict.nesting, nesting);
  dict.charge_to(&budget_, sizeof(DictObject::Entry) + 64);
  dict.set(key, std::move(value));
}

const Value* Runtime::dict_find(const DictObject& dict, const Value& key) {
  check_hashable(key);
  budget_.charge(1 + (key.is_string() ? key.view().size() / 32 : dict.size()));
  return dict.find(key);
}

Value Runtime::dict(std::shared_ptr<DictObject> made) {
  made->nesting = std::max(made->nesting, 1u);
  return object(Type::kDict, std::move(made), sizeof(DictObject));
}

bool Runtime::is_iterable(const Value& value) const {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kDictView:
    case Type::kRange:
    case Type::kIterator:
    case Type::kLoop:
      return true;
    default:
      return false;
  }
}

std::shared_ptr<IteratorObject> iterate_values(std::vector<Value> items) {
  auto out = std::make_shared<ValuesIterator>();
  for (const Value& item : items) out->nesting = std::max(out->nesting, item.nesting());
  out->nesting += 1;
  out->items = std::move(items);
  return out;
}

std::shared_ptr<IteratorObject> Runtime::iterate(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return iterate_values({});
    case Type::kIterator:
      return std::static_pointer_cast<IteratorObject>(value.object());
    case Type::kLoop:
      return iterate_loop(value);
    case Type::kString: {
      auto out = std::make_shared<StringIterator>();
      out->nesting = 1;
      out->text = value;
      return out;
    }
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kDictView:
    case Type::kRange: {
      auto out = std::make_shared<ContainerIterator>();
      out->nesting = value.nesting() + 1;
      out->container = value;
      return out;
    }
    default:
      fail(ErrorCode::kInvalidArgument, "'{}' object is not iterable", type_name(value));
  }
}

std::vector<Value> Runtime::to_vector(const Value& value) {
  if (value.is_sequence()) {
    budget_.charge(1 + value.items().size() / 4);
    return value.items();
  }
  std::vector<Value> out;
  const auto iterator = iterate(value);
  Value item;
  const std::size_t max_items = budget_.limits().max_memory_bytes / (4 * sizeof(Value));
  while (iterator->next(*this, item)) {
    if (out.size() >= max_items) fail(ErrorCode::kInvalidArgument, "a list exceeds {} items", max_items);
    out.push_back(std::move(item));
  }
  return out;
}

Value Runtime::call(const Value& callee, Arguments& arguments) {
  const DepthGuard guard(budget_);
  budget_.charge(1);
  switch (callee.type()) {
    case Type::kFunction: {
      const auto& function = callee.as<FunctionObject>();
      return function.body(*this, function.self, arguments);
    }
    case Type::kMacro:
    case Type::kLoop:
      return call_special(callee, arguments);
    case Type::kJoiner: {
      auto& joiner = callee.as<JoinerObject>();
      if (!arguments.positional.empty() || !arguments.named.empty())
        fail(ErrorCode::kInvalidArgument, "a joiner takes no arguments");
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return string("");
    }
    case Type::kUndefined:
      require_defined(callee);
      [[fallthrough]];
    default:
      fail(ErrorCode::kInvalidArgument, "'{}' object is not callable", type_name(callee));
  }
}

Value Runtime::call_filter(std::string_view name, const Value& input, Arguments& arguments) {
  const FilterBody body = find_filter(name);
  if (body == nullptr) fail(ErrorCode::kInvalidArgument, "No filter named '{}' found.", name);
  const DepthGuard guard(budget_);
  budget_.charge(1);
  return body(*this, input, arguments);
}

bool Runtime::call_test(std::string_view name, const Value& input, Arguments& arguments) {
  const TestBody body = find_test(name);
  if (body == nullptr) fail(ErrorCode::kInvalidArgument, "No test named '{}' found.", name);
  budget_.charge(1);
  return body(*this, input, arguments);
}

void require_defined(const Value& value) {
  if (!value.is_undefined()) return;
  if (value.object() == nullptr) fail(ErrorCode::kInvalidArgument, "a value is undefined");
  fail(ErrorCode::kInvalidArgument, "{}", value.as<StringObject>().text.view());
}

void fail_operand(std::string_view what, const Value& value) {
  require_defined(value);
  fail(ErrorCode::kInvalidArgument, "{}: unsupported for '{}'", what, type_name(value));
}

std::int64_t as_index(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_int();
  require_defined(value);
  fail(ErrorCode::kInvalidArgument, "{}: expected an integer, got '{}'", what, type_name(value));
}

MarkedString escape_html(Runtime& runtime, const MarkedString& text) {
  runtime.budget().charge_characters(text.size());
  MarkedMapper out(text);
  const std::string_view view = text.view();
  for (std::size_t i = 0; i < view.size(); ++i) {
    switch (view[i]) {
      case '&':
        out.append("&amp;", i);
        break;
      case '<':
        out.append("&lt;", i);
        break;
      case '>':
        out.append("&gt;", i);
        break;
      case '\'':
        out.append("&#39;", i);
        break;
      case '"':
        out.append("&#34;", i);
        break;
      default:
        out.append(view.substr(i, 1), i);
    }
  }
  return out.take();
}

std::string repeated(Runtime& runtime, std::string_view unit, std::int64_t count) {
  if (count <= 0 || unit.empty()) return {};
  const auto n = static_cast<std::uint64_t>(count);
  runtime.budget().check_text_size(n > (1ull << 40) ? static_cast<std::size_t>(1ull << 40) : n * unit.size());
  std::string out;
  out.reserve(n * unit.size());
  for (std::uint64_t i = 0; i < n; ++i) out += unit;
  return out;
}

std::vector<Value> attribute_path(Runtime& runtime, const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> out;
  const MarkedString& text = attribute.text();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.view().find('.', begin), text.size());
    const std::string_view part = text.view().substr(begin, end - begin);
    const bool is_number = !part.empty() && part.size() < 18 &&
                           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    out.push_back(is_number ? Value::integer(std::stoll(std::string(part)))
                            : runtime.string(text.slice(begin, end)));
    begin = end + 1;
  }
  return out;
}

Value follow_path(Runtime& runtime, Value value, const std::vector<Value>& path, const Value* fallback) {
  for (const Value& part : path) {
    value = runtime.get_item(value, part);
    if (fallback != nullptr && value.is_undefined()) value = *fallback;
  }
  return value;
}

}  // namespace triptych::jinja
