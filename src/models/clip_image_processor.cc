#include "models/clip_image_processor.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {
namespace {

constexpr int kMaxSide = 8192;
constexpr int kMaxPaddedSide = 16384;  // of a square around a picture
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

// A number for each channel, or one for all, in [min, kMaxLevel].
constexpr double kMaxLevel = 1000;  // of a mean or a deviation: grey levels, rescaled or not, are below
std::array<double, 3> parse_triple(const JsonView& v, double min) {
  const auto one = [min](const JsonView& item) { return item.as_double(min, kMaxLevel); };
  if (v.is_number()) return {one(v), one(v), one(v)};
  const auto items = v.items();
  if (items.size() != 3) v.fail_expected("an array of 3 numbers");
  return {one(items[0]), one(items[1]), one(items[2])};
}

// resize(pad_to_square(image, colour), target), the target a square too. The padded square may be far larger
// than the picture, so it is made in blocks of rows: as both axes change alike, the horizontal pass is the
// first, and rows of one colour stay as they are in it.
Image pad_and_resize(const Image& image, SizePx target, Rgb8 colour, Filter filter, ThreadPool* pool) {
  constexpr int kBlockRows = 256;
  const int side = std::max(image.width_px, image.height_px);
  const int left = (side - image.width_px) / 2;
  const int top = (side - image.height_px) / 2;
  Image narrow = pad({target.width_px, 0, {}}, {.left = 0, .top = side, .right = 0, .bottom = 0}, colour);
  for (int row = 0; row < image.height_px; row += kBlockRows) {
    const int n_rows = std::min(kBlockRows, image.height_px - row);
    const Image block =
        resize(pad(crop(image, 0, row, {image.width_px, n_rows}),
                   {.left = left, .top = 0, .right = side - image.width_px - left, .bottom = 0}, colour),
               target.width_px, n_rows, filter, pool);
    std::copy(block.rgb.begin(), block.rgb.end(),
              narrow.rgb.begin() +
                  static_cast<std::ptrdiff_t>(static_cast<std::size_t>(top + row) * narrow.row_bytes()));
  }
  return resize(narrow, target.width_px, target.height_px, filter, pool);
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
  out.rescale_factor = c.get_double("rescale_factor", out.rescale_factor, 1e-6, 1.0);
  out.do_normalize = c.get_bool("do_normalize", true);
  if (const auto mean = c.find("image_mean")) out.mean = parse_triple(*mean, -kMaxLevel);
  if (const auto std = c.find("image_std")) out.std = parse_triple(*std, 1e-6);
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
  SizePx size{image.width_px, image.height_px};
  if (do_pad) {
    const int side = std::max(size.width_px, size.height_px);
    if (side > kMaxPaddedSide)
      fail(ErrorCode::kInvalidArgument,
           "a picture of {}x{} pixels cannot be padded to a square: its side may have {} pixels at most",
           size.width_px, size.height_px, kMaxPaddedSide);
    size = {side, side};
  }
  SizePx target = size;
  if (do_resize) target = shortest_edge_px ? shortest_edge_size(size, *shortest_edge_px) : size_px;
  if (do_pad && target.width_px == target.height_px) {
    keep(pad_and_resize(image, target, mean_colour(normalize.mean), resample, pool));
  } else {
    if (do_pad) keep(pad_to_square(image, mean_colour(normalize.mean)));
    const SizePx kept = do_center_crop ? crop_size_px : target;
    const CropAxis x = center_crop_axis(target.width_px, kept.width_px);
    const CropAxis y = center_crop_axis(target.height_px, kept.height_px);
    keep(resize_part(*current, {target.width_px, target.height_px, x.source, y.source, x.length, y.length},
                     resample, pool));
  }
  if (do_center_crop) keep(center_crop(*current, crop_size_px));
  Tensor out(DType::kF32, {3, current->height_px, current->width_px});
  normalize_chw(*current, normalize, {out.f32(), static_cast<std::size_t>(out.view().numel())});
  return out;
}

}  // namespace triptych
