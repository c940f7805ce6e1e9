// Filters on lists and dictionaries. Source: jinja2 3.1 filters.py (behaviour, not code).
#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/text_ops.h"

namespace triptych::jinja {
namespace {

/// Text in lower case unless asked otherwise; other values as they are.
Value fold_case(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return runtime.string(to_lower(runtime, value.text()), value.string().is_markup);
}

/// Paths of "a,b.c": several attributes to sort by.
std::vector<std::vector<Value>> attribute_paths(Runtime& runtime, const Value& attribute) {
  if (!attribute.is_string()) return {attribute_path(runtime, attribute)};
  std::vector<std::vector<Value>> out;
  const MarkedString& text = attribute.text();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.view().find(',', begin), text.size());
    out.push_back(attribute_path(runtime, runtime.string(text.slice(begin, end))));
    begin = end + 1;
  }
  return out;
}

std::vector<Value> values_of(std::vector<std::pair<Value, Value>>&& keyed) {
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return out;
}

using Body = std::vector<Value> (*)(Runtime& runtime, const Value& input, Arguments& arguments);

/// A filter that is a generator in jinja2: nothing happens, nothing fails, before the first item is asked
/// for.
struct DeferredFilter final : IteratorObject {
  Body body = nullptr;
  Value input;
  Arguments arguments;
  std::shared_ptr<IteratorObject> source;

  bool next(Runtime& runtime, Value& item) override {
    const DepthGuard guard(runtime.budget());
    if (!source) source = iterate_values(body(runtime, input, arguments));
    return source->next(runtime, item);
  }
};

Value deferred(Runtime& runtime, Body body, const Value& input, Arguments& arguments) {
  auto filter = std::make_shared<DeferredFilter>();
  filter->body = body;
  filter->nesting = input.nesting() + 2;
  for (const Value& value : arguments.positional)
    filter->nesting = std::max(filter->nesting, value.nesting() + 2);
  for (const auto& [name, value] : arguments.named)
    filter->nesting = std::max(filter->nesting, value.nesting() + 2);
  filter->input = input;
  filter->arguments = std::move(arguments);
  return runtime.iterator(std::move(filter));
}

Value filter_length(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("length", arguments, {});
  const auto n = runtime.length(input);
  if (!n) fail(ErrorCode::kInvalidArgument, "object of type '{}' has no len()", type_name(input));
  return Value::integer(*n);
}

Value filter_list(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return runtime.list(runtime.to_vector(input));
}

Value filter_first(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("first", arguments, {});
  Value item;
  if (runtime.iterate(input)->next(runtime, item)) return item;
  return runtime.undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("last", arguments, {});
  const auto n = input.is(Type::kLoop) ? std::nullopt : runtime.length(input);
  if (!n) fail(ErrorCode::kInvalidArgument, "'{}' object is not reversible", type_name(input));
  if (*n == 0) return runtime.undefined("No last item, sequence was empty.");
  if (!input.is_dict() && !input.is(Type::kDictView)) return runtime.get_item(input, Value::integer(-1));
  return runtime.to_vector(input).back();
}

Value filter_reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (input.is_string()) return runtime.slice(input, Value::none(), Value::none(), Value::integer(-1));
  if (!runtime.is_iterable(input)) fail(ErrorCode::kInvalidArgument, "argument must be iterable");
  std::vector<Value> items = runtime.to_vector(input);
  std::reverse(items.begin(), items.end());
  if (input.is(Type::kIterator)) return runtime.list(std::move(items));
  return runtime.iterator(iterate_values(std::move(items)));
}

std::vector<Value> items_values(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  std::vector<Value> items;
  if (!input.is_undefined()) {
    if (!input.is_dict()) fail(ErrorCode::kInvalidArgument, "Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.dict().entries()) items.push_back(runtime.tuple({key, value}));
  }
  return items;
}

Value filter_sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(runtime, 1, false);
  const auto paths = attribute_paths(runtime, bound.has(2) ? bound.at(2) : Value::none());
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : runtime.to_vector(input)) {
    std::vector<Value> key;
    for (const auto& path : paths)
      key.push_back(fold_case(runtime, follow_path(runtime, item, path), case_sensitive));
    keyed.emplace_back(runtime.list(std::move(key)), item);
  }
  runtime.sort(keyed, bound.integer(0, 0) != 0);
  return runtime.list(values_of(std::move(keyed)));
}

Value filter_dictsort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const bool case_sensitive = bound.truth(runtime, 0, false);
  const std::string_view by = bound.has(1) ? bound.text(1).view() : "key";
  if (by != "key" && by != "value")
    fail(ErrorCode::kInvalidArgument, "You can only sort by either \"key\" or \"value\"");
  if (!input.is_dict()) fail_operand("dictsort", input);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict().entries())
    keyed.emplace_back(fold_case(runtime, by == "key" ? key : value, case_sensitive),
                       runtime.tuple({key, value}));
  runtime.sort(keyed, bound.integer(2, 0) != 0);
  return runtime.list(values_of(std::move(keyed)));
}

Value extreme(Runtime& runtime, const Value& input, Arguments& arguments, bool want_max) {
  const Bound bound(want_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(runtime, 0, false);
  std::vector<Value> path;
  if (bound.has(1)) path = attribute_path(runtime, bound.at(1));
  const auto iterator = runtime.iterate(input);
  Value best, best_key, item;
  bool is_first = true;
  while (iterator->next(runtime, item)) {
    Value key = fold_case(runtime, follow_path(runtime, item, path), case_sensitive);
    if (is_first || (want_max ? runtime.less(best_key, key) : runtime.less(key, best_key))) {
      best = item;
      best_key = std::move(key);
    }
    is_first = false;
  }
  return is_first ? runtime.undefined("No aggregated item, sequence was empty.") : best;
}

Value filter_min(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, false);
}
Value filter_max(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, true);
}

std::vector<Value> unique_values(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(runtime, 0, false);
  std::vector<Value> path;
  if (bound.has(1)) path = attribute_path(runtime, bound.at(1));
  DictObject seen;
  std::vector<Value> items;
  for (const Value& item : runtime.to_vector(input)) {
    const Value key = fold_case(runtime, follow_path(runtime, item, path), case_sensitive);
    if (runtime.dict_find(seen, key) != nullptr) continue;
    runtime.dict_set(seen, key, Value::none());
    items.push_back(item);
  }
  return items;
}

Value filter_groupby(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const std::vector<Value> path = attribute_path(runtime, bound.at(0));
  const Value* fallback = bound.has_value(1) ? &bound.at(1) : nullptr;
  const bool case_sensitive = bound.truth(runtime, 2, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : runtime.to_vector(input))
    keyed.emplace_back(fold_case(runtime, follow_path(runtime, item, path, fallback), case_sensitive), item);
  runtime.sort(keyed, /*reverse=*/false);
  std::vector<Value> groups;
  for (std::size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> members;
    for (end = begin; end < keyed.size() && runtime.equal(keyed[begin].first, keyed[end].first); ++end)
      members.push_back(keyed[end].second);
    if (members.empty()) members.push_back(keyed[end++].second);  // NaN is not equal to itself
    Value name = follow_path(runtime, members.front(), path, fallback);
    const Value group = runtime.tuple({std::move(name), runtime.list(std::move(members))});
    group.as<SequenceObject>().is_group = true;
    groups.push_back(group);
  }
  return runtime.list(std::move(groups));
}

void check_count(Runtime& runtime, std::int64_t count) {
  if (count > runtime.budget().limits().max_range)
    fail(ErrorCode::kInvalidArgument, "more than {} items asked for", runtime.budget().limits().max_range);
}

std::vector<Value> batch_values(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : runtime.to_vector(input)) {
    if (static_cast<std::int64_t>(batch.size()) == size)
      batches.push_back(runtime.list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (bound.has_value(1) && static_cast<std::int64_t>(batch.size()) < size) {
      check_count(runtime, size);
      batch.resize(static_cast<std::size_t>(size), bound.at(1));
    }
    batches.push_back(runtime.list(std::move(batch)));
  }
  return batches;
}

std::vector<Value> slice_values(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t n = bound.integer(0, 1);
  if (n == 0) fail(ErrorCode::kInvalidArgument, "division by zero");
  check_count(runtime, n);
  const std::vector<Value> items = runtime.to_vector(input);
  std::vector<Value> slices;
  const std::int64_t length = static_cast<std::int64_t>(items.size());
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool has_extra = i < length % n;
    const std::int64_t end = begin + length / n + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (bound.has_value(1) && !has_extra) part.push_back(bound.at(1));
    slices.push_back(runtime.list(std::move(part)));
    begin = end;
  }
  return slices;
}

// Arguments are bound when the filter is called, as for any Python function.
Value filter_items(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  return deferred(runtime, items_values, input, arguments);
}
Value filter_unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  return deferred(runtime, unique_values, input, arguments);
}
Value filter_batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  return deferred(runtime, batch_values, input, arguments);
}
Value filter_slice(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  return deferred(runtime, slice_values, input, arguments);
}

struct Entry {
  std::string_view name;
  FilterBody body;
};
constexpr Entry kFilters[] = {
    {"batch", filter_batch}, {"count", filter_length},    {"dictsort", filter_dictsort},
    {"first", filter_first}, {"groupby", filter_groupby}, {"items", filter_items},
    {"last", filter_last},   {"length", filter_length},   {"list", filter_list},
    {"max", filter_max},     {"min", filter_min},         {"reverse", filter_reverse},
    {"slice", filter_slice}, {"sort", filter_sort},       {"unique", filter_unique},
};

}  // namespace

FilterBody find_sequence_filter(std::string_view name) {
  for (const Entry& entry : kFilters)
    if (entry.name == name) return entry.body;
  return nullptr;
}

}  // namespace triptych::jinja
