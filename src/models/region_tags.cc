#include "models/region_tags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace triptych {
namespace {

constexpr int kFullScale = 1000;
constexpr std::size_t kMaxObjectBytes = 4096;  // of a JSON object that may be a region

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// ---- "(x,y),(x,y)"

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  /// A mark with blanks around it.
  bool take_mark(std::string_view mark) {
    skip_blanks();
    if (!take(mark)) return false;
    skip_blanks();
    return true;
  }
  /// An integer in [0, 1000].
  std::optional<int> take_coordinate() {
    int value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > kFullScale) return std::nullopt;
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  std::size_t position() const noexcept { return at_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// `text` starts behind the opening mark. Returns the bytes read up to and with the closing mark; 0 when the
// form is another.
std::size_t read_points(std::string_view text, std::size_t n_points, std::string_view close,
                        std::vector<PointPerMille>& points) {
  Cursor cursor(text);
  for (std::size_t i = 0; i < n_points; ++i) {
    if (i > 0 && !cursor.take_mark(",")) return 0;
    if (!cursor.take_mark("(")) return 0;
    const auto x = cursor.take_coordinate();
    if (!x || !cursor.take_mark(",")) return 0;
    const auto y = cursor.take_coordinate();
    if (!y || !cursor.take_mark(")")) return 0;
    points.push_back({static_cast<double>(*x), static_cast<double>(*y)});
  }
  cursor.skip_blanks();
  return cursor.take(close) ? cursor.position() : 0;
}

// Models name corners in any order; a box has its top left first.
void order_corners(Region& region) {
  if (region.kind != RegionKind::kBox) return;
  const auto order = [](auto& points) {
    if (points[0].x > points[1].x) std::swap(points[0].x, points[1].x);
    if (points[0].y > points[1].y) std::swap(points[0].y, points[1].y);
  };
  order(region.points_1000);
  order(region.points_px);
}

int scaled(double thousandths, int size_px) {
  return static_cast<int>(thousandths / kFullScale * static_cast<double>(size_px));
}

// ---- JSON

// Numbers of a member [n, n, ...] with exactly `count` finite ones; empty otherwise.
std::vector<double> numbers(const Json& object, const char* key, std::size_t count) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() != count) return {};
  std::vector<double> out;
  for (const Json& item : *found) {
    if (!item.is_number()) return {};
    const double value = item.get<double>();
    if (!std::isfinite(value)) return {};
    out.push_back(value);
  }
  return out;
}

// What the numbers of a region are shares of.
struct Scale {
  double width, height;
};

// Beyond the picture's edges becomes the edge.
void add_point(Region& region, double x, double y, const Scale& scale, const MediaPlan& plan) {
  const double u = std::clamp(x / scale.width, 0.0, 1.0);
  const double v = std::clamp(y / scale.height, 0.0, 1.0);
  // Multiplied first, so that thousandths stay the numbers they are.
  region.points_1000.push_back({std::clamp(x * kFullScale / scale.width, 0.0, 1.0 * kFullScale),
                                std::clamp(y * kFullScale / scale.height, 0.0, 1.0 * kFullScale)});
  region.points_px.push_back(
      {static_cast<int>(u * plan.meta.width_px), static_cast<int>(v * plan.meta.height_px)});
}

std::optional<Region> region_of(std::string_view text, const Scale& scale, const MediaPlan& plan) try {
  const Json object = parse_json(text, "answer");
  Region region;
  std::vector<double> values = numbers(object, "bbox_2d", 4);
  if (values.empty()) {
    values = numbers(object, "point_2d", 2);
    region.kind = RegionKind::kPoint;
  }
  if (values.empty()) return std::nullopt;
  for (std::size_t i = 0; i < values.size(); i += 2) add_point(region, values[i], values[i + 1], scale, plan);
  order_corners(region);
  if (const auto label = object.find("label"); label != object.end() && label->is_string())
    region.label = trimmed(label->get_ref<const std::string&>());
  return region;
} catch (const Error&) {
  return std::nullopt;  // not JSON
}

}  // namespace

int last_picture(std::span<const MediaPlan> plans) {
  for (std::size_t i = plans.size(); i-- > 0;)
    if (!plans[i].meta.is_video) return static_cast<int>(i);
  return -1;
}

std::vector<Region> find_tagged_regions(std::string_view answer, const RegionTags& tags,
                                        std::span<const MediaPlan> plans) {
  std::vector<Region> out;
  const int picture = last_picture(plans);
  if (picture < 0) return out;
  const MediaMeta& meta = plans[static_cast<std::size_t>(picture)].meta;
  std::optional<std::size_t> name_begin;  // behind an open <ref>
  std::string_view name;                  // of what follows
  for (std::size_t at = 0; at < answer.size();) {
    const std::string_view rest = answer.substr(at);
    if (rest.starts_with(tags.ref_open)) {
      at += tags.ref_open.size();
      name_begin = at;
      name = {};
      continue;
    }
    if (rest.starts_with(tags.ref_close) && name_begin) {
      name = trimmed(answer.substr(*name_begin, at - *name_begin));
      name_begin.reset();
      at += tags.ref_close.size();
      continue;
    }
    const bool is_box = rest.starts_with(tags.box_open);
    if (is_box || rest.starts_with(tags.quad_open)) {
      Region region;
      region.kind = is_box ? RegionKind::kBox : RegionKind::kQuad;
      const std::string_view open = is_box ? tags.box_open : tags.quad_open;
      const std::size_t n = read_points(rest.substr(open.size()), is_box ? 2 : 4,
                                        is_box ? tags.box_close : tags.quad_close, region.points_1000);
      at += open.size() + n;
      if (n == 0) continue;
      region.label = name;
      region.media_index = picture;
      for (const PointPerMille& p : region.points_1000)
        region.points_px.push_back({scaled(p.x, meta.width_px), scaled(p.y, meta.height_px)});
      order_corners(region);
      out.push_back(std::move(region));
      continue;
    }
    if (std::string_view(" \t\r\n,").find(rest.front()) == std::string_view::npos) name = {};
    ++at;
  }
  return out;
}

std::vector<Region> find_json_regions(std::string_view answer, std::span<const MediaPlan> plans,
                                      RegionUnit unit) {
  std::vector<Region> out;
  const int picture = last_picture(plans);
  if (picture < 0) return out;
  const MediaPlan& plan = plans[static_cast<std::size_t>(picture)];
  if (plan.resized_width_px <= 0 || plan.resized_height_px <= 0) return out;
  const Scale scale = unit == RegionUnit::kThousandths ? Scale{kFullScale, kFullScale}
                                                       : Scale{static_cast<double>(plan.resized_width_px),
                                                               static_cast<double>(plan.resized_height_px)};
  // Objects that hold no other; a brace within a string counts for nothing.
  std::size_t open = std::string_view::npos;
  bool in_string = false;
  for (std::size_t at = 0; at < answer.size(); ++at) {
    const char c = answer[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"' || c == '\n') in_string = false;  // a string ends with its line, closed or not
    } else if (c == '"') {
      in_string = open != std::string_view::npos;
    } else if (c == '{') {
      open = at;
    } else if (c == '}' && open != std::string_view::npos) {
      const std::size_t n = at - open + 1;
      if (n <= kMaxObjectBytes)
        if (auto region = region_of(answer.substr(open, n), scale, plan)) {
          region->media_index = picture;
          out.push_back(std::move(*region));
        }
      open = std::string_view::npos;
    }
  }
  return out;
}

}  // namespace triptych
