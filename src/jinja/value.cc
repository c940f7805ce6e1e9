#include "jinja/value.h"

#include <algorithm>
#include <cmath>

#include "unicode/utf8.h"

namespace triptych::jinja {
namespace {

constexpr std::size_t kIndexFrom = 12;  // entries; below it a scan is as fast as the map
constexpr std::size_t kNotFound = static_cast<std::size_t>(-1);

}  // namespace

std::size_t StringObject::offset(std::size_t index) const {
  if (is_ascii() || index == 0) return std::min(index, text.size());
  if (index >= length) return text.size();
  const std::string_view view = text.view();
  std::size_t pos = 0;
  for (std::size_t i = 0; i < index; ++i) utf8::next_bounded(view, pos);
  return pos;
}

Value make_string(Budget* budget, MarkedString text, bool is_markup) {
  auto object = std::make_shared<StringObject>();
  object->charge_to(budget, sizeof(StringObject) + text.bytes());
  object->length = utf8::count(text.view());
  object->text = std::move(text);
  object->is_markup = is_markup;
  return Value(Type::kString, std::move(object));
}

const Value* DictObject::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &entries_[it->second].second;
  }
  for (const auto& [name, value] : entries_)
    if (name.is_string() && name.view() == key) return &value;
  return nullptr;
}

std::size_t DictObject::index_of(const Value& key) const {
  if (key.is_string()) {
    if (!index_.empty()) {
      const auto it = index_.find(key.view());
      return it == index_.end() ? kNotFound : it->second;
    }
  } else if (n_other_keys_ == 0) {
    return kNotFound;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (keys_equal(entries_[i].first, key)) return i;
  return kNotFound;
}

const Value* DictObject::find(const Value& key) const {
  const std::size_t i = index_of(key);
  return i == kNotFound ? nullptr : &entries_[i].second;
}

void DictObject::set(const Value& key, Value value) {
  if (const std::size_t i = index_of(key); i != kNotFound) {
    entries_[i].second = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  if (!key.is_string()) ++n_other_keys_;
  if (!index_.empty()) {
    if (key.is_string()) index_.emplace(key.view(), entries_.size() - 1);
  } else if (entries_.size() >= kIndexFrom) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].first.is_string()) index_.emplace(entries_[i].first.view(), i);
  }
}

void DictObject::clear() {
  index_.clear();
  n_other_keys_ = 0;
  std::vector<Entry> doomed;
  doomed.swap(entries_);
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  if (!a.is_integral() && !b.is_integral()) {
    const double x = a.as_double(), y = b.as_double();
    if (std::isnan(x) || std::isnan(y)) return 2;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (b.is_integral()) {
    const int mirrored = compare_numbers(b, a);
    return mirrored == 2 ? 2 : -mirrored;
  }
  // An integer against a float, without rounding the integer.
  const std::int64_t i = a.as_int();
  const double d = b.as_double();
  if (std::isnan(d)) return 2;
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  const double whole = std::floor(d);
  const auto w = static_cast<std::int64_t>(whole);
  if (i != w) return i < w ? -1 : 1;
  return whole < d ? -1 : 0;
}

bool keys_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      return a.view() == b.view();
    case Type::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), keys_equal);
    default:
      return a.object() == b.object();
  }
}

std::string_view type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return value.string().is_markup ? "Markup" : "str";
    case Type::kList:
      return "list";
    case Type::kTuple:
      return "tuple";
    case Type::kDict:
      return "dict";
    case Type::kDictView: {
      const auto kind = value.as<DictViewObject>().kind;
      return kind == DictViewObject::Kind::kItems  ? "dict_items"
             : kind == DictViewObject::Kind::kKeys ? "dict_keys"
                                                   : "dict_values";
    }
    case Type::kRange:
      return "range";
    case Type::kIterator:
      return "generator";
    case Type::kNamespace:
      return "Namespace";
    case Type::kCycler:
      return "Cycler";
    case Type::kJoiner:
      return "Joiner";
    case Type::kLoop:
      return "LoopContext";
    case Type::kMacro:
      return "Macro";
    case Type::kFunction:
      return "function";
  }
  return "object";
}

}  // namespace triptych::jinja
