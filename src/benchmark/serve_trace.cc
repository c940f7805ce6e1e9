#include "benchmark/serve_trace.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "report/json_text.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxRequests = 1'000'000;
constexpr std::size_t kMaxPictures = 64;  // of a request
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMaxGroup = std::int64_t{1} << 53;  // a double holds it
constexpr std::size_t kMaxText_bytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTenant_bytes = 256;
constexpr std::int64_t kMaxSide_px = 16384;
constexpr double kMaxArrival_ms = 1e9;  // eleven days
constexpr std::int64_t kMaxPriority = 1'000'000;

void refuse_others(const JsonView& object, const std::set<std::string, std::less<>>& members) {
  for (const auto& [name, value] : object.members()) {
    if (members.contains(name)) continue;
    std::string known;
    for (const std::string& member : members) known.append(known.empty() ? "" : ", ").append(member);
    fail(ErrorCode::kInvalidFile, "{}: unknown member \"{}\"; there are {}", object.path(), name, known);
  }
}

std::string text_at(const JsonView& object, std::string_view key, std::size_t max_bytes) {
  std::string out = object.get_string(key, "");
  if (out.size() > max_bytes)
    fail(ErrorCode::kInvalidFile, "{}.{}: expected at most {} bytes, got {}", object.path(), key, max_bytes,
         out.size());
  return out;
}

TracePicture picture_of(const JsonView& view) {
  refuse_others(view, {"width", "height", "group", "file"});
  TracePicture out;
  out.file = text_at(view, "file", 4096);
  if (!out.file.empty()) {
    for (const char* key : {"width", "height", "group"})
      if (view.has(key))
        fail(ErrorCode::kInvalidFile, "{}.{}: a picture of a file has its own", view.path(), key);
    return out;
  }
  out.width_px = static_cast<int>(view.at("width").as_int(1, kMaxSide_px));
  out.height_px = static_cast<int>(view.at("height").as_int(1, kMaxSide_px));
  out.group = view.get_int("group", 0, 0, kMaxGroup);
  return out;
}

TraceRequest request_of(const JsonView& line) {
  refuse_others(line, {"arrival_ms", "pictures", "prompt_tokens", "prompt", "answer_tokens", "prefix_group",
                       "prefix_tokens", "tenant", "priority"});
  TraceRequest out;
  out.arrival_ms = line.get_double("arrival_ms", 0, 0, kMaxArrival_ms);
  if (const auto pictures = line.find("pictures")) {
    const std::vector<JsonView> items = pictures->items();
    if (items.size() > kMaxPictures)
      fail(ErrorCode::kInvalidFile, "{}: expected at most {} pictures, got {}", pictures->path(),
           kMaxPictures, items.size());
    for (const JsonView& item : items) out.pictures.push_back(picture_of(item));
  }
  out.prompt = text_at(line, "prompt", kMaxText_bytes);
  if (out.prompt.empty()) {
    out.prompt_tokens = line.at("prompt_tokens").as_int(1, kMaxTokens);
  } else if (line.has("prompt_tokens") || line.has("prefix_tokens")) {
    fail(ErrorCode::kInvalidFile, "{}: \"prompt\" and numbers of its tokens exclude each other", line.path());
  }
  out.answer_tokens = line.at("answer_tokens").as_int(1, kMaxTokens);
  out.prefix_group = line.get_int("prefix_group", 0, 0, kMaxGroup);
  out.prefix_tokens = line.get_int("prefix_tokens", 0, 0, std::max<std::int64_t>(out.prompt_tokens, 0));
  out.tenant = text_at(line, "tenant", kMaxTenant_bytes);
  out.priority = static_cast<int>(line.get_int("priority", 0, -kMaxPriority, kMaxPriority));
  return out;
}

JsonOut to_json(const TracePicture& picture) {
  if (!picture.file.empty()) return {{"file", picture.file}};
  JsonOut out = {{"width", picture.width_px}, {"height", picture.height_px}};
  if (picture.group != 0) out["group"] = picture.group;
  return out;
}

JsonOut to_json(const TraceRequest& request) {
  JsonOut out = {{"arrival_ms", request.arrival_ms}};
  if (!request.pictures.empty()) {
    out["pictures"] = JsonOut::array();
    for (const TracePicture& picture : request.pictures) out["pictures"].push_back(to_json(picture));
  }
  if (request.prompt.empty()) {
    out["prompt_tokens"] = request.prompt_tokens;
  } else {
    out["prompt"] = request.prompt;
  }
  out["answer_tokens"] = request.answer_tokens;
  if (request.prefix_group != 0) out["prefix_group"] = request.prefix_group;
  if (request.prefix_tokens != 0) out["prefix_tokens"] = request.prefix_tokens;
  if (!request.tenant.empty()) out["tenant"] = request.tenant;
  if (request.priority != 0) out["priority"] = request.priority;
  return out;
}

std::int64_t draw(Rng& rng, const std::pair<std::int64_t, std::int64_t>& range) {
  return range.first +
         static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(range.second - range.first) + 1));
}

void check(const TraceMix& mix) {
  const auto range_is_sound = [](const std::pair<std::int64_t, std::int64_t>& range) {
    return range.first >= 1 && range.first <= range.second && range.second <= kMaxTokens;
  };
  const bool sides_are_sound = std::all_of(mix.sides_px.begin(), mix.sides_px.end(),
                                           [](int side) { return side >= 1 && side <= kMaxSide_px; });
  if (mix.n_requests < 1 || static_cast<std::size_t>(mix.n_requests) > kMaxRequests)
    fail(ErrorCode::kInvalidArgument, "{} requests: expected 1 to {}", mix.n_requests, kMaxRequests);
  if (mix.sides_px.empty() || !sides_are_sound)
    fail(ErrorCode::kInvalidArgument, "sides of pictures: expected at least one, from 1 to {} pixels",
         kMaxSide_px);
  if (!range_is_sound(mix.prompt_tokens) || !range_is_sound(mix.answer_tokens))
    fail(ErrorCode::kInvalidArgument, "tokens of prompts and answers: expected low,high from 1 to {}",
         kMaxTokens);
  if (mix.prefix_tokens < 0 || mix.prefix_tokens + mix.prompt_tokens.second > kMaxTokens || mix.n_tenants < 1)
    fail(ErrorCode::kInvalidArgument, "{} tokens of prefixes, {} tenants: out of range", mix.prefix_tokens,
         mix.n_tenants);
  for (const double share : {mix.text_share, mix.repeat_share})
    if (!(share >= 0 && share <= 1))
      fail(ErrorCode::kInvalidArgument, "a share of {}: expected 0 to 1", share);
}

}  // namespace

std::string trace_text(const std::vector<TraceRequest>& requests) {
  std::string out;
  for (const TraceRequest& request : requests) out += to_json_text(to_json(request), false) + '\n';
  return out;
}

std::vector<TraceRequest> parse_trace(std::string_view text, const std::string& name) {
  std::vector<TraceRequest> out;
  std::size_t n_line = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++n_line;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", name, n_line);
    if (out.size() == kMaxRequests)
      fail(ErrorCode::kInvalidFile, "{}: expected at most {} requests", where, kMaxRequests);
    const Json content = parse_json_unique_keys(line, where);
    const JsonView view(content, where);
    if (!view.is_object()) view.fail_expected("an object");
    out.push_back(request_of(view));
  }
  if (out.empty()) fail(ErrorCode::kInvalidFile, "{}: it holds no request", name);
  return out;
}

std::vector<TraceRequest> make_trace(const TraceMix& mix) {
  check(mix);
  Rng rng(mix.seed);
  const auto side = [&] { return mix.sides_px[rng.below(mix.sides_px.size())]; };
  std::vector<TraceRequest> out;
  std::vector<TracePicture> shown;
  for (int i = 0; i < mix.n_requests; ++i) {
    TraceRequest request;
    if (rng.uniform() >= mix.text_share) {
      if (rng.uniform() < mix.repeat_share && !shown.empty()) {
        request.pictures.push_back(shown[rng.below(shown.size())]);
      } else {
        const int width_px = side();
        shown.push_back({.width_px = width_px, .height_px = side(), .group = i + 1});
        request.pictures.push_back(shown.back());
      }
    }
    request.prompt_tokens = draw(rng, mix.prompt_tokens) + mix.prefix_tokens;
    request.answer_tokens = draw(rng, mix.answer_tokens);
    const auto tenant = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(mix.n_tenants)));
    if (mix.n_tenants > 1) request.tenant = fmt::format("tenant-{}", tenant);
    if (mix.prefix_tokens > 0) {
      request.prefix_group = tenant + 1;
      request.prefix_tokens = mix.prefix_tokens;
    }
    out.push_back(std::move(request));
  }
  if (mix.requests_per_s > 0) set_poisson_arrivals(out, mix.requests_per_s, mix.seed);
  return out;
}

void set_poisson_arrivals(std::vector<TraceRequest>& requests, double requests_per_s, std::uint64_t seed) {
  if (!(requests_per_s > 0) || !std::isfinite(requests_per_s))
    fail(ErrorCode::kInvalidArgument, "{} requests a second: expected a number above 0", requests_per_s);
  Rng rng(seed, 1);  // the mix has the stream before
  double at_s = 0;
  for (TraceRequest& request : requests) {
    at_s += -std::log(1.0 - rng.uniform()) / requests_per_s;
    request.arrival_ms = std::round(at_s * 1e6) / 1e3;  // libraries differ in the last bits of a logarithm
  }
}

}  // namespace triptych
