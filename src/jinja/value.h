// Values of the template language: what Python's jinja2 would hold, immutable where its
// ImmutableSandboxedEnvironment forbids change. Containers are shared by reference; only namespaces,
// iterators and loops change after they are made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/budget.h"
#include "jinja/marked_string.h"

namespace triptych::jinja {

enum class Type : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNamespace,
  kCycler,
  kJoiner,
  kLoop,
  kMacro,
  kFunction,
};

/// Base of everything on the heap. Bytes are charged to the render's budget (none for constants of the
/// program).
class Object {
 public:
  Object() = default;
  virtual ~Object() {
    if (budget_ != nullptr) budget_->give_back(charged_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void charge_to(Budget* budget, std::size_t bytes) {
    if (budget == nullptr) return;
    budget->take(bytes);
    budget_ = budget;
    charged_ += bytes;
  }
  /// Levels of containers below and including this one.
  std::uint32_t nesting = 0;

 protected:
  Budget* budget_ = nullptr;

 private:
  std::size_t charged_ = 0;
};

struct StringObject;
struct SequenceObject;
struct DictObject;

class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::shared_ptr<Object> message) {
    return Value(Type::kUndefined, std::move(message));
  }
  static Value none() { return Value(Type::kNone, nullptr); }
  static Value boolean(bool b) {
    Value v(Type::kBool, nullptr);
    v.int_ = b ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Type::kInt, nullptr);
    v.int_ = i;
    return v;
  }
  static Value number(double d) {
    Value v(Type::kFloat, nullptr);
    v.float_ = d;
    return v;
  }
  Value(Type type, std::shared_ptr<Object> object) : type_(type), object_(std::move(object)) {}

  Type type() const noexcept { return type_; }
  bool is(Type type) const noexcept { return type_ == type; }
  bool is_undefined() const noexcept { return type_ == Type::kUndefined; }
  bool is_none() const noexcept { return type_ == Type::kNone; }
  bool is_string() const noexcept { return type_ == Type::kString; }
  bool is_dict() const noexcept { return type_ == Type::kDict; }
  bool is_sequence() const noexcept { return type_ == Type::kList || type_ == Type::kTuple; }
  /// An int in Python's sense: bool too.
  bool is_integral() const noexcept { return type_ == Type::kInt || type_ == Type::kBool; }
  bool is_number() const noexcept { return is_integral() || type_ == Type::kFloat; }

  bool as_bool() const noexcept { return int_ != 0; }
  std::int64_t as_int() const noexcept { return int_; }
  /// Of any number.
  double as_double() const noexcept { return type_ == Type::kFloat ? float_ : static_cast<double>(int_); }

  const StringObject& string() const;       // kString
  const MarkedString& text() const;         // kString
  std::string_view view() const;            // kString
  const std::vector<Value>& items() const;  // kList, kTuple
  const DictObject& dict() const;           // kDict

  const std::shared_ptr<Object>& object() const noexcept { return object_; }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  std::uint32_t nesting() const noexcept { return object_ ? object_->nesting : 0; }

 private:
  Type type_ = Type::kUndefined;
  union {
    std::int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  MarkedString text;
  std::size_t length = 0;  // code points
  bool is_markup = false;  // result of safe or escape: adding to it escapes the other side

  bool is_ascii() const noexcept { return length == text.size(); }
  /// Byte offset of a code point index in [0, length].
  std::size_t offset(std::size_t index) const;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // tuple made by groupby: has .grouper and .list
};

/// Ordered as Python's dict; keys compare as in Python (1 == 1.0 == true).
struct DictObject : Object {
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::size_t size() const noexcept { return entries_.size(); }
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  /// Inserts or replaces (a replaced key keeps its place). The key must be hashable.
  void set(const Value& key, Value value);
  void clear();

 private:
  std::size_t index_of(const Value& key) const;

  std::vector<Entry> entries_;
  std::map<std::string_view, std::size_t> index_;  // of string keys, once there are many
  std::size_t n_other_keys_ = 0;                   // keys that are no strings
};

/// dict.items(), keys(), values().
struct DictViewObject : Object {
  enum class Kind : std::uint8_t { kItems, kKeys, kValues };
  Value dict;
  Kind kind = Kind::kItems;
};

struct RangeObject : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t length = 0;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

class Runtime;

/// What Python calls an iterator or generator: can be walked once, has no length, is always true.
struct IteratorObject : Object {
  /// The next item, or false at the end.
  virtual bool next(Runtime& runtime, Value& item) = 0;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  std::size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

/// Arguments of a call, in order.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A built-in function, or a method bound to `self`.
struct FunctionObject : Object {
  using Body = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);
  std::string name;
  Value self;
  Body body = nullptr;
};

/// Python's == for values that need no runtime (used for dict keys).
bool keys_equal(const Value& a, const Value& b);
/// Exact comparison of two numbers: -1, 0, 1, or 2 when one is NaN.
int compare_numbers(const Value& a, const Value& b);

/// Name of the Python type: "str", "int", "NoneType"...
std::string_view type_name(const Value& value);

inline const StringObject& Value::string() const { return as<StringObject>(); }
inline const MarkedString& Value::text() const { return as<StringObject>().text; }
inline std::string_view Value::view() const { return as<StringObject>().text.view(); }
inline const std::vector<Value>& Value::items() const { return as<SequenceObject>().items; }
inline const DictObject& Value::dict() const { return as<DictObject>(); }

/// Makes a string value. `budget` may be null for constants of a program.
Value make_string(Budget* budget, MarkedString text, bool is_markup = false);

}  // namespace triptych::jinja
