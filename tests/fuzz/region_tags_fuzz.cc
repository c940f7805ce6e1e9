// A text from arbitrary bytes, looked through for boxes in every form; what is found is drawn. Nothing may
// be thrown, and every region keeps what its description promises.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "media/draw.h"
#include "models/fuyu_tags.h"
#include "models/region_tags.h"
#include "only_errors.h"

namespace {

using namespace triptych;

constexpr RegionTags kTags[] = {{"<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>"},
                                {"<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
                                 "<|quad_start|>", "<|quad_end|>"}};

void check(const Region& region, const MediaMeta& picture) {
  const std::size_t n_points = region.kind == RegionKind::kPoint ? 1U
                               : region.kind == RegionKind::kBox ? 2U
                                                                 : 4U;
  fuzz::require(region.points_1000.size() == n_points && region.points_px.size() == n_points,
                "points of its kind");
  for (const PointPerMille& p : region.points_1000)
    fuzz::require(p.x >= 0 && p.x <= 1000 && p.y >= 0 && p.y <= 1000, "thousandths in range");
  for (const PointPx& p : region.points_px)
    fuzz::require(p.x >= 0 && p.x <= picture.width_px && p.y >= 0 && p.y <= picture.height_px,
                  "pixels in range");
}

// Marks are the ids 0 to 3, the number n is 10 + n.
std::optional<std::int32_t> fuyu_id(std::string_view content) {
  if (content.starts_with("<0x0") && content.size() == 6) return content[4] - '0';
  return 10 + std::stoi(std::string(content));
}

void check_fuyu(std::string_view text, const MediaPlan& plan, std::vector<Region>& all) {
  static const FuyuTags tags(fuyu_id, {1920, 1080});
  fuzz::only_errors([&] {
    std::size_t last = 0;
    for (const TypedTag& tag : tags.find_typed(text, &plan)) {
      fuzz::require(tag.begin >= last && tag.end > tag.begin && tag.end <= text.size(), "tags in order");
      fuzz::require(tag.ids.empty() || tag.ids.size() == 4 || tag.ids.size() == 6, "tokens of a tag");
      last = tag.end;
    }
  });
  std::vector<std::int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  for (const Region& region : tags.find_regions(ids, plan)) all.push_back(region);
  for (std::span<const std::int32_t> rest = ids; !rest.empty();) {
    const AnswerTag tag = tags.read_answer(rest, &plan);
    fuzz::require(tag.n_ids <= rest.size() && (tag.n_ids == 0 || !tag.text.empty()), "an answer's tag");
    fuzz::require(!tag.undecided || rest.size() < 6, "decided after six tokens");
    rest = rest.subspan(tag.n_ids == 0 ? 1 : tag.n_ids);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  MediaPlan plan;
  plan.meta.width_px = size == 0 ? 1 : 1 + data[0];
  plan.meta.height_px = 37;
  plan.resized_width_px = plan.resized_height_px = 56;
  std::vector<Region> all = find_json_regions(text, {&plan, 1});
  for (const Region& region : find_json_regions(text, {&plan, 1}, RegionUnit::kThousandths))
    all.push_back(region);
  for (const RegionTags& tags : kTags) {
    const auto found = find_tagged_regions(text, tags, {&plan, 1});
    all.insert(all.end(), found.begin(), found.end());
  }
  check_fuyu(text, plan, all);
  for (const Region& region : all) check(region, plan.meta);
  Image image{
      plan.meta.width_px, plan.meta.height_px,
      PoolVector<std::uint8_t>(static_cast<std::size_t>(plan.meta.width_px * plan.meta.height_px) * 3, 0)};
  if (all.size() <= 64) draw_regions(image, all);
  return 0;
}
