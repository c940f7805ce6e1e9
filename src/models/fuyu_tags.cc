#include "models/fuyu_tags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

constexpr unsigned char kLastMarkByte = 4;  // <0x00> to <0x04> are marks, so these characters cannot be text

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Exactly `count` numbers between commas; empty otherwise.
std::vector<double> parse_numbers(std::string_view text, std::size_t count) {
  std::vector<double> out;
  for (;;) {
    const std::size_t comma = text.find(',');
    const auto value = parse_number(text.substr(0, comma));
    if (!value || out.size() == count) return {};
    out.push_back(*value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return out.size() == count ? out : std::vector<double>{};
}

}  // namespace

FuyuTags::FuyuTags(const std::function<std::optional<std::int32_t>(std::string_view)>& token_id,
                   SizePx limit_px)
    : limit_px_(limit_px) {
  const auto id_of = [&](std::string_view content) { return token_id(content).value_or(-1); };
  forms_ = {{"<box>", "</box>", 4, id_of("<0x00>"), id_of("<0x01>")},
            {"<point>", "</point>", 2, id_of("<0x02>"), id_of("<0x03>")}};
  std::erase_if(forms_, [](const Form& form) { return form.open_id < 0 || form.close_id < 0; });
  const int n = std::max(limit_px.width_px, limit_px.height_px) + 1;
  for (int number = 0; number < n; ++number) {
    id_of_number_.push_back(id_of(std::to_string(number)));
    if (id_of_number_.back() >= 0) number_of_id_.emplace(id_of_number_.back(), number);
  }
}

// np.round(value / 2 * scale), half to even; the reference holds its scale in float32.
std::int32_t FuyuTags::coordinate_id(double value, const MediaPlan& picture) const {
  const auto scale = static_cast<float>(static_cast<double>(picture.resized_height_px) /
                                        static_cast<double>(picture.meta.height_px));
  const double number = std::nearbyint(value / 2 * static_cast<double>(scale));
  if (number >= 0 && number < static_cast<double>(id_of_number_.size()))
    if (const std::int32_t id = id_of_number_[static_cast<std::size_t>(number)]; id >= 0) return id;
  fail(ErrorCode::kInvalidArgument,
       "coordinate {} of a box or point becomes {}, for which the vocabulary has no token; coordinates are "
       "pixels of the picture, which has {}x{}",
       value, number, picture.meta.width_px, picture.meta.height_px);
}

std::vector<TypedTag> FuyuTags::find_typed(std::string_view text, const MediaPlan* picture) const {
  std::vector<TypedTag> out;
  if (forms_.empty()) return out;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) <= kLastMarkByte) {
      out.push_back({.begin = at, .end = at + 1, .ids = {}});
      ++at;
      continue;
    }
    const std::string_view rest = text.substr(at);
    const auto form = picture == nullptr || rest.front() != '<'
                          ? forms_.end()
                          : std::find_if(forms_.begin(), forms_.end(),
                                         [&](const Form& f) { return rest.starts_with(f.open); });
    ++at;
    if (form == forms_.end()) continue;
    // The next mark must be the closing one: a mistake costs no more than the text up to it.
    const std::size_t close = rest.find('<', 1);
    if (close == std::string_view::npos || !rest.substr(close).starts_with(form->close)) continue;
    const auto values =
        parse_numbers(rest.substr(form->open.size(), close - form->open.size()), form->n_numbers);
    if (values.empty()) continue;
    TypedTag tag{.begin = at - 1, .end = at - 1 + close + form->close.size(), .ids = {form->open_id}};
    for (const double value : values) tag.ids.push_back(coordinate_id(value, *picture));
    tag.ids.push_back(form->close_id);
    at = tag.end;
    out.push_back(std::move(tag));
  }
  return out;
}

FuyuTags::Numbers FuyuTags::read_numbers(std::span<const std::int32_t> ids) const {
  Numbers out;
  const auto form = std::find_if(forms_.begin(), forms_.end(),
                                 [&](const Form& f) { return !ids.empty() && f.open_id == ids.front(); });
  if (form == forms_.end()) return out;
  out.form = &*form;
  for (std::size_t i = 1; i <= form->n_numbers + 1; ++i) {
    if (i == ids.size()) {
      out.undecided = true;
      return out;
    }
    if (i == form->n_numbers + 1) break;
    const auto number = number_of_id_.find(ids[i]);
    if (number == number_of_id_.end()) return out;
    out.values.push_back(number->second);
  }
  if (ids[form->n_numbers + 1] == form->close_id) out.n_ids = form->n_numbers + 2;
  return out;
}

// 2 * int(number / scale). The reference divides by float32 tensors, and torch divides a number by a tensor
// as the tensor's reciprocal times the number.
std::vector<int> FuyuTags::in_pixels(const Numbers& numbers, const MediaPlan* picture) const {
  float scale = 1.0F;
  if (picture != nullptr) {
    const MediaMeta& meta = picture->meta;
    if (meta.width_px > limit_px_.width_px || meta.height_px > limit_px_.height_px)
      scale = std::min(1.0F / static_cast<float>(meta.height_px) * static_cast<float>(limit_px_.height_px),
                       1.0F / static_cast<float>(meta.width_px) * static_cast<float>(limit_px_.width_px));
  }
  const float inverse = 1.0F / scale;
  std::vector<int> out;
  for (const int value : numbers.values)
    out.push_back(2 * static_cast<int>(inverse * static_cast<float>(value)));
  return out;
}

AnswerTag FuyuTags::read_answer(std::span<const std::int32_t> ids, const MediaPlan* picture) const {
  const Numbers numbers = read_numbers(ids);
  if (numbers.n_ids == 0) return {.undecided = numbers.undecided, .n_ids = 0, .text = {}};
  std::string text;
  for (const int value : in_pixels(numbers, picture))
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  return {.undecided = false,
          .n_ids = numbers.n_ids,
          .text = std::string(numbers.form->open) + text + std::string(numbers.form->close)};
}

std::vector<Region> FuyuTags::find_regions(std::span<const std::int32_t> ids,
                                           const MediaPlan& picture) const {
  std::vector<Region> out;
  const int width = picture.meta.width_px, height = picture.meta.height_px;
  for (std::size_t at = 0; at < ids.size();) {
    const Numbers numbers = read_numbers(ids.subspan(at));
    at += std::max<std::size_t>(numbers.n_ids, 1);
    if (numbers.n_ids == 0) continue;
    std::vector<int> values = in_pixels(numbers, &picture);
    Region region;
    if (values.size() == 4) {  // a box begins with its top
      std::swap(values[0], values[1]);
      std::swap(values[2], values[3]);
    } else {
      region.kind = RegionKind::kPoint;
    }
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const PointPx p{std::clamp(values[i], 0, width), std::clamp(values[i + 1], 0, height)};
      region.points_px.push_back(p);
      region.points_1000.push_back({1000.0 * p.x / width, 1000.0 * p.y / height});
    }
    out.push_back(std::move(region));
  }
  return out;
}

}  // namespace triptych
