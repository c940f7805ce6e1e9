// Functions every template sees. Source: jinja2 3.1 defaults.py and utils.py, transformers
// chat_template_utils.py.
#include <algorithm>
#include <array>

#include "jinja/builtins.h"

namespace triptych::jinja {
namespace {

constexpr std::int64_t kExact = std::int64_t{1}
                                << 53;  // bounds of ranges, so that arithmetic on them cannot overflow

Value make_range(Runtime& runtime, const Value&, Arguments& arguments) {
  const Bound bound("range", arguments, {"", "", ""}, 1);
  auto out = std::make_shared<RangeObject>();
  out->start = bound.has(1) ? bound.integer(0, 0) : 0;
  out->stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  out->step = bound.integer(2, 1);
  if (out->step == 0) fail(ErrorCode::kInvalidArgument, "range() arg 3 must not be zero");
  for (const std::int64_t part : {out->start, out->stop, out->step})
    if (part > kExact || part < -kExact)
      fail(ErrorCode::kInvalidArgument, "range: the number {} is too big", part);
  if (out->step > 0 && out->stop > out->start) out->length = (out->stop - out->start - 1) / out->step + 1;
  if (out->step < 0 && out->stop < out->start) out->length = (out->start - out->stop - 1) / -out->step + 1;
  if (out->length > runtime.budget().limits().max_range)
    fail(ErrorCode::kInvalidArgument, "Range too big. The sandbox blocks ranges larger than {}.",
         runtime.budget().limits().max_range);
  return runtime.object(Type::kRange, std::move(out), sizeof(RangeObject));
}

/// dict(mapping or pairs, **named) into `out`.
void fill_dict(Runtime& runtime, DictObject& out, Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1)
    fail(ErrorCode::kInvalidArgument, "{} expected at most 1 argument", function);
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    require_defined(source);
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().entries()) runtime.dict_set(out, key, value);
    } else {
      const auto iterator = runtime.iterate(source);
      Value item;
      while (iterator->next(runtime, item)) {
        const std::vector<Value> pair = runtime.to_vector(item);
        if (pair.size() != 2)
          fail(ErrorCode::kInvalidArgument, "{}: sequence elements must be pairs", function);
        runtime.dict_set(out, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) runtime.dict_set(out, runtime.string(name), value);
}

Value make_dict(Runtime& runtime, const Value&, Arguments& arguments) {
  auto out = std::make_shared<DictObject>();
  fill_dict(runtime, *out, arguments, "dict");
  return runtime.dict(std::move(out));
}

Value make_namespace(Runtime& runtime, const Value&, Arguments& arguments) {
  auto out = std::make_shared<NamespaceObject>();
  const Value made = runtime.make_namespace(out);
  fill_dict(runtime, out->attributes, arguments, "namespace");
  return made;
}

Value make_cycler(Runtime& runtime, const Value&, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    fail(ErrorCode::kInvalidArgument, "at least one item has to be provided");
  auto out = std::make_shared<CyclerObject>();
  for (const Value& item : arguments.positional) out->nesting = std::max(out->nesting, item.nesting());
  ++out->nesting;
  out->items = std::move(arguments.positional);
  const std::size_t bytes = sizeof(CyclerObject) + out->items.size() * sizeof(Value);
  return runtime.object(Type::kCycler, std::move(out), bytes);
}

Value make_joiner(Runtime& runtime, const Value&, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  auto out = std::make_shared<JoinerObject>();
  out->separator = bound.has(0) ? bound.at(0) : runtime.string(", ");
  out->nesting = out->separator.nesting() + 1;
  return runtime.object(Type::kJoiner, std::move(out), sizeof(JoinerObject));
}

Value raise_exception(Runtime& runtime, const Value&, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw RaisedByTemplate(runtime.str(bound.at(0)).str());
}

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

/// One directive of strftime in the C locale. `pad` is '\0' for "%-d".
std::string date_part(const std::tm& now, char directive, char pad) {
  const auto two = [&](int n) { return pad == '\0' ? fmt::format("{}", n) : fmt::format("{:02}", n); };
  const int hour12 = now.tm_hour % 12 == 0 ? 12 : now.tm_hour % 12;
  const auto day = kDays[static_cast<std::size_t>(std::clamp(now.tm_wday, 0, 6))];
  const auto month = kMonths[static_cast<std::size_t>(std::clamp(now.tm_mon, 0, 11))];
  switch (directive) {
    case 'Y':
      return fmt::format("{}", now.tm_year + 1900);
    case 'y':
      return two((now.tm_year % 100 + 100) % 100);
    case 'C':
      return two((now.tm_year + 1900) / 100);
    case 'm':
      return two(now.tm_mon + 1);
    case 'd':
      return two(now.tm_mday);
    case 'e':
      return fmt::format("{:>2}", now.tm_mday);
    case 'H':
      return two(now.tm_hour);
    case 'I':
      return two(hour12);
    case 'M':
      return two(now.tm_min);
    case 'S':
      return two(now.tm_sec);
    case 'f':
      return "000000";
    case 'j':
      return pad == '\0' ? fmt::format("{}", now.tm_yday + 1) : fmt::format("{:03}", now.tm_yday + 1);
    case 'a':
      return std::string(day.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'p':
      return now.tm_hour < 12 ? "AM" : "PM";
    case 'w':
      return fmt::format("{}", now.tm_wday);
    case 'u':
      return fmt::format("{}", now.tm_wday == 0 ? 7 : now.tm_wday);
    case 'U':
      return two((now.tm_yday + 7 - now.tm_wday) / 7);
    case 'W':
      return two((now.tm_yday + 7 - (now.tm_wday + 6) % 7) / 7);
    case 'Z':
    case 'z':
      return "";  // a naive time, as datetime.now() is
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default:
      fail(ErrorCode::kInvalidArgument, "strftime_now: the directive '%{}' is not supported", directive);
  }
}

std::string format_date(const std::tm& now, std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    char directive = format[++i];
    char pad = '0';
    if (directive == '-' && i + 1 < format.size()) {
      pad = '\0';
      directive = format[++i];
    }
    static constexpr std::pair<char, std::string_view> kCompound[] = {{'F', "%Y-%m-%d"},
                                                                      {'T', "%H:%M:%S"},
                                                                      {'R', "%H:%M"},
                                                                      {'D', "%m/%d/%y"},
                                                                      {'x', "%m/%d/%y"},
                                                                      {'X', "%H:%M:%S"},
                                                                      {'c', "%a %b %e %H:%M:%S %Y"},
                                                                      {'r', "%I:%M:%S %p"}};
    const auto compound = std::find_if(std::begin(kCompound), std::end(kCompound),
                                       [&](const auto& c) { return c.first == directive; });
    out +=
        compound != std::end(kCompound) ? format_date(now, compound->second) : date_part(now, directive, pad);
  }
  return out;
}

Value strftime_now(Runtime& runtime, const Value&, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string_view format = bound.text(0).view();
  if (format.size() > 1000) fail(ErrorCode::kInvalidArgument, "strftime_now: the format is too long");
  return runtime.string(format_date(runtime.now(), format));
}

}  // namespace

void add_globals(Runtime& runtime, DictObject& globals) {
  const std::pair<const char*, FunctionObject::Body> functions[] = {
      {"range", make_range},          {"dict", make_dict},     {"namespace", make_namespace},
      {"cycler", make_cycler},        {"joiner", make_joiner}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  for (const auto& [name, body] : functions) globals.set(runtime.string(name), runtime.function(name, body));
}

}  // namespace triptych::jinja
