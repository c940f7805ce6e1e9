// Attributes, items, slices, lengths. jinja2's rule: object.name tries the attribute, then the item;
// object[key] the item, then the attribute. What ImmutableSandboxedEnvironment calls unsafe is undefined here
// too.
#include <algorithm>
#include <array>

#include "jinja/builtins.h"
#include "jinja/runtime.h"

namespace triptych::jinja {
namespace {

constexpr std::array<std::string_view, 13> kMutators = {"append", "clear",  "pop",    "reverse", "insert",
                                                        "sort",   "extend", "remove", "popitem", "setdefault",
                                                        "update", "add",    "discard"};

Value cycler_next(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("next", arguments, {});
  auto& cycler = self.as<CyclerObject>();
  runtime.budget().charge(1);
  Value out = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return out;
}

Value cycler_reset(Runtime&, const Value& self, Arguments& arguments) {
  const Bound bound("reset", arguments, {});
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

Value int_bit_length(Runtime&, const Value& self, Arguments& arguments) {
  const Bound bound("bit_length", arguments, {});
  const std::int64_t i = self.as_int();
  auto magnitude = i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  std::int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::integer(bits);
}

Value float_is_integer(Runtime&, const Value& self, Arguments& arguments) {
  const Bound bound("is_integer", arguments, {});
  const double d = self.as_double();
  return Value::boolean(d - d == 0 &&
                        d == static_cast<double>(static_cast<long long>(std::clamp(d, -9e18, 9e18))));
}

std::optional<Value> number_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_integral()) {
    if (name == "real" || name == "numerator") return Value::integer(object.as_int());
    if (name == "imag") return Value::integer(0);
    if (name == "denominator") return Value::integer(1);
    if (name == "bit_length") return runtime.function("bit_length", int_bit_length, object);
    return std::nullopt;
  }
  if (name == "real") return object;
  if (name == "imag") return Value::number(0);
  if (name == "is_integer") return runtime.function("is_integer", float_is_integer, object);
  return std::nullopt;
}

/// Item i of a list, tuple, range or string; nothing when out of range.
std::optional<Value> item_at(Runtime& runtime, const Value& object, std::int64_t i, std::int64_t length) {
  if (i < 0) i += length;
  if (i < 0 || i >= length) return std::nullopt;
  const auto index = static_cast<std::size_t>(i);
  switch (object.type()) {
    case Type::kList:
    case Type::kTuple:
      return object.items()[index];
    case Type::kRange:
      return Value::integer(object.as<RangeObject>().at(i));
    default: {
      const StringObject& text = object.string();
      if (!text.is_ascii()) runtime.budget().charge_text(text.text.size());
      const std::size_t begin = text.offset(index);
      const std::size_t end = text.is_ascii() ? begin + 1 : text.offset(index + 1);
      return runtime.string(text.text.slice(begin, end), text.is_markup);
    }
  }
}

/// Python's slice.indices().
struct SliceBounds {
  std::int64_t start, stop, step, length;
};

SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step, std::int64_t length) {
  constexpr std::string_view kWhat = "slice indices must be integers";
  SliceBounds out{0, 0, step.is_none() ? 1 : as_index(step, kWhat), 0};
  if (out.step == 0) fail(ErrorCode::kInvalidArgument, "slice step cannot be zero");
  out.step = std::clamp<std::int64_t>(out.step, -(std::int64_t{1} << 40), std::int64_t{1} << 40);
  const std::int64_t low = out.step < 0 ? -1 : 0;
  const std::int64_t high = out.step < 0 ? length - 1 : length;
  const auto place = [&](const Value& bound, std::int64_t fallback) {
    if (bound.is_none()) return fallback;
    std::int64_t i = as_index(bound, kWhat);
    if (i < 0) i += length;
    return std::clamp(i, low, high);
  };
  out.start = place(start, out.step < 0 ? high : low);
  out.stop = place(stop, out.step < 0 ? low : high);
  if (out.step > 0 && out.stop > out.start) out.length = (out.stop - out.start - 1) / out.step + 1;
  if (out.step < 0 && out.stop < out.start) out.length = (out.start - out.stop - 1) / -out.step + 1;
  return out;
}

Value slice_string(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  const StringObject& text = object.string();
  runtime.budget().charge_text(text.text.size());
  if (bounds.length == 0) return runtime.string(MarkedString(), text.is_markup);
  if (bounds.step == 1) {
    const std::size_t begin = text.offset(static_cast<std::size_t>(bounds.start));
    const std::size_t end = text.offset(static_cast<std::size_t>(bounds.stop));
    return runtime.string(text.text.slice(begin, end), text.is_markup);
  }
  runtime.budget().charge(static_cast<std::uint64_t>(bounds.length));
  std::vector<std::size_t> offsets;  // of each code point
  offsets.reserve(text.length + 1);
  const std::string_view view = text.text.view();
  for (std::size_t i = 0; i < view.size(); ++i)
    if ((static_cast<unsigned char>(view[i]) & 0xC0) != 0x80) offsets.push_back(i);
  offsets.push_back(view.size());
  MarkedMapper out(text.text);
  for (std::int64_t n = 0, i = bounds.start; n < bounds.length; ++n, i += bounds.step) {
    const std::size_t begin = offsets[static_cast<std::size_t>(i)];
    out.append(view.substr(begin, offsets[static_cast<std::size_t>(i) + 1] - begin), begin);
  }
  return runtime.string(out.take(), text.is_markup);
}

std::string missing(const Value& object, const Value& key) {
  if (key.is_string()) return fmt::format("'{} object' has no attribute '{}'", type_name(object), key.view());
  if (key.is_integral()) return fmt::format("{} object has no element {}", type_name(object), key.as_int());
  return fmt::format("{} object has no such element", type_name(object));
}

}  // namespace

std::optional<std::int64_t> Runtime::length(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return static_cast<std::int64_t>(value.string().length);
    case Type::kList:
    case Type::kTuple:
      return static_cast<std::int64_t>(value.items().size());
    case Type::kDict:
      return static_cast<std::int64_t>(value.dict().size());
    case Type::kDictView:
      return static_cast<std::int64_t>(value.as<DictViewObject>().dict.dict().size());
    case Type::kRange:
      return value.as<RangeObject>().length;
    case Type::kLoop:
      return loop_length(value);
    default:
      return std::nullopt;
  }
}

std::optional<Value> Runtime::find_attribute(const Value& object, std::string_view name) {
  if (name.starts_with('_')) return std::nullopt;
  switch (object.type()) {
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return number_attribute(*this, object, name);
    case Type::kNamespace: {
      const Value* value = object.as<NamespaceObject>().attributes.find(name);
      if (value == nullptr) return std::nullopt;
      return *value;
    }
    case Type::kTuple:
      if (object.as<SequenceObject>().is_group && (name == "grouper" || name == "list"))
        return object.items()[name == "grouper" ? 0 : 1];
      break;
    case Type::kRange: {
      const auto& range = object.as<RangeObject>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      break;
    }
    case Type::kCycler: {
      const auto& cycler = object.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<std::int64_t>(cycler.position));
      if (name == "next") return function("next", cycler_next, object);
      if (name == "reset") return function("reset", cycler_reset, object);
      return std::nullopt;
    }
    case Type::kLoop:
    case Type::kMacro:
      return special_attribute(object, name);
    default:
      break;
  }
  if (const auto body = find_method(object, name); body != nullptr)
    return function(std::string(name), body, object);
  if ((object.is(Type::kList) || object.is_dict()) &&
      std::find(kMutators.begin(), kMutators.end(), name) != kMutators.end()) {
    const bool exists = object.is_dict() ? name == "clear" || name == "pop" || name == "popitem" ||
                                               name == "setdefault" || name == "update"
                                         : name != "popitem" && name != "setdefault" && name != "update" &&
                                               name != "add" && name != "discard";
    if (exists)
      return undefined(
          fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  return std::nullopt;
}

Value Runtime::get_attribute(const Value& object, std::string_view name) {
  budget_.charge(1);
  require_defined(object);
  if (auto found = find_attribute(object, name)) return *std::move(found);
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value Runtime::get_item(const Value& object, const Value& key) {
  budget_.charge(1);
  require_defined(object);
  switch (object.type()) {
    case Type::kDict:
      if (key.is(Type::kList) || key.is_dict()) break;
      if (const Value* value = dict_find(object.dict(), key)) return *value;
      break;
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kRange:
      if (key.is_integral()) {
        if (auto item = item_at(*this, object, key.as_int(), *length(object))) return *std::move(item);
      }
      break;
    default:
      break;
  }
  if (key.is_string()) {
    if (auto found = find_attribute(object, key.view())) return *std::move(found);
  }
  return undefined(missing(object, key));
}

Value Runtime::slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  const bool can_slice = object.is_string() || object.is_sequence() || object.is(Type::kRange);
  if (!can_slice) fail(ErrorCode::kInvalidArgument, "'{}' object cannot be sliced", type_name(object));
  const SliceBounds bounds = slice_bounds(start, stop, step, *length(object));
  if (object.is_string()) return slice_string(*this, object, bounds);
  if (object.is(Type::kRange)) {
    const auto& range = object.as<RangeObject>();
    auto out = std::make_shared<RangeObject>();
    out->start = range.at(bounds.start);
    out->stop = range.at(bounds.stop);
    // A step that leads out of any range only shows when the range is printed; a huge one is left out.
    std::int64_t step_product = 0;
    const bool fits = !__builtin_mul_overflow(range.step, bounds.step, &step_product) &&
                      step_product < (std::int64_t{1} << 53) && step_product > -(std::int64_t{1} << 53);
    out->step = fits ? step_product : range.step;
    out->length = bounds.length;
    return this->object(Type::kRange, std::move(out), sizeof(RangeObject));
  }
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(bounds.length));
  for (std::int64_t n = 0, i = bounds.start; n < bounds.length; ++n, i += bounds.step)
    items.push_back(object.items()[static_cast<std::size_t>(i)]);
  return object.is(Type::kList) ? list(std::move(items)) : tuple(std::move(items));
}

}  // namespace triptych::jinja
