#include "models/clip_image_processor.h"

#include "base/error.h"

namespace triptych {
namespace {

constexpr int kMaxSide = 8192;
constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd{0.26862954, 0.26130258, 0.27577711};

SizePx parse_size(const JsonView& v) {
  if (v.is_number()) {
    const int side = static_cast<int>(v.as_int(1, kMaxSide));
    return {side, side};
  }
  return {static_cast<int>(v.at("width").as_int(1, kMaxSide)),
          static_cast<int>(v.at("height").as_int(1, kMaxSide))};
}

std::array<double, 3> parse_triple(const JsonView& v) {
  if (v.is_number()) return {v.as_double(), v.as_double(), v.as_double()};
  const auto items = v.items();
  if (items.size() != 3) v.fail_expected("an array of 3 numbers");
  return {items[0].as_double(), items[1].as_double(), items[2].as_double()};
}

}  // namespace

ClipImageProcessor ClipImageProcessor::clip(int image_size_px) {
  ClipImageProcessor out;
  out.shortest_edge_px = image_size_px;
  out.crop_size_px = {image_size_px, image_size_px};
  out.normalize.mean = kClipMean;
  out.normalize.std = kClipStd;
  return out;
}

NormalizeOptions parse_normalize(const JsonView& c) {
  NormalizeOptions out;
  out.mean = kClipMean;
  out.std = kClipStd;
  out.do_rescale = c.get_bool("do_rescale", true);
  out.rescale_factor = c.get_double("rescale_factor", out.rescale_factor);
  out.do_normalize = c.get_bool("do_normalize", true);
  if (const auto mean = c.find("image_mean")) out.mean = parse_triple(*mean);
  if (const auto std = c.find("image_std")) out.std = parse_triple(*std);
  for (const double s : out.std)
    if (s == 0) fail(ErrorCode::kInvalidFile, "{}.image_std: expected numbers other than 0", c.path());
  return out;
}

ClipImageProcessor ClipImageProcessor::parse(const JsonView& c) {
  ClipImageProcessor out;
  const std::string type =
      c.get_string("image_processor_type", c.get_string("feature_extractor_type", "CLIPImageProcessor"));
  out.normalize = parse_normalize(c);
  if (type.rfind("Blip", 0) == 0) {
    out.do_center_crop = false;
    out.size_px = {384, 384};
  } else if (type.rfind("Siglip", 0) == 0) {
    out.do_center_crop = false;
    out.size_px = {224, 224};
    if (!c.has("image_mean")) out.normalize.mean = {0.5, 0.5, 0.5};
    if (!c.has("image_std")) out.normalize.std = {0.5, 0.5, 0.5};
  } else {
    out.shortest_edge_px = 224;
  }
  out.do_pad = type.rfind("Llava", 0) == 0 && type.rfind("LlavaNext", 0) != 0 && c.get_bool("do_pad", false);
  out.do_resize = c.get_bool("do_resize", true);
  if (const auto size = c.find("size")) {
    if (size->is_number() && out.shortest_edge_px) {
      out.shortest_edge_px = static_cast<int>(size->as_int(1, kMaxSide));
    } else if (size->is_object() && size->has("shortest_edge")) {
      if (size->has("longest_edge"))
        fail(ErrorCode::kUnsupported, "{}: shortest_edge together with longest_edge is not supported here",
             size->path());
      out.shortest_edge_px = static_cast<int>(size->at("shortest_edge").as_int(1, kMaxSide));
    } else {
      out.shortest_edge_px.reset();
      out.size_px = parse_size(*size);
    }
  }
  out.resample = filter_from_pillow(static_cast<int>(c.get_int("resample", 3, 0, 5)));
  out.do_center_crop = c.get_bool("do_center_crop", out.do_center_crop);
  if (const auto crop = c.find("crop_size")) out.crop_size_px = parse_size(*crop);
  return out;
}

std::optional<SizePx> ClipImageProcessor::fixed_size() const {
  if (do_center_crop) return crop_size_px;
  if (do_resize && !shortest_edge_px) return size_px;
  if (do_resize && do_pad) return SizePx{*shortest_edge_px, *shortest_edge_px};
  return std::nullopt;
}

Tensor ClipImageProcessor::operator()(const Image& image, ThreadPool* pool) const {
  Image work;
  const Image* current = &image;
  const auto keep = [&](Image made) {
    work = std::move(made);
    current = &work;
  };
  if (do_pad) keep(pad_to_square(*current, mean_colour(normalize.mean)));
  if (do_resize) {
    SizePx target = size_px;
    if (shortest_edge_px)
      target = shortest_edge_size({current->width_px, current->height_px}, *shortest_edge_px);
    if (target.width_px > (1 << 20) || target.height_px > (1 << 20))
      fail(ErrorCode::kInvalidArgument,
           "a picture of {}x{} pixels is too narrow to resize its short side to {}", image.width_px,
           image.height_px, shortest_edge_px.value_or(0));
    keep(resize(*current, target.width_px, target.height_px, resample, pool));
  }
  if (do_center_crop) keep(center_crop(*current, crop_size_px));
  Tensor out(DType::kF32, {3, current->height_px, current->width_px});
  normalize_chw(*current, normalize, {out.f32(), static_cast<std::size_t>(out.view().numel())});
  return out;
}

}  // namespace triptych
