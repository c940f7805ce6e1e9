#include "api/convert.h"
#include "api/impl.h"
#include "base/error.h"
#include "base/profile.h"
#include "base/stopwatch.h"
#include "io/mapped_file.h"
#include "media/draw.h"
#include "media/image_decode.h"
#include "media/image_encode.h"

namespace triptych::api {
namespace {

const triptych::Image& inner(const MediaInput& media) { return media.frames.front(); }

triptych::Image checked_image(int width_px, int height_px, std::span<const std::uint8_t> rgb) {
  const int max_side_px = DecodeLimits().max_side_px;
  if (width_px < 1 || height_px < 1 || width_px > max_side_px || height_px > max_side_px)
    fail(triptych::ErrorCode::kInvalidArgument, "picture of {}x{} pixels: expected sides from 1 to {}",
         width_px, height_px, max_side_px);
  const std::size_t n_bytes = static_cast<std::size_t>(width_px) * static_cast<std::size_t>(height_px) * 3;
  if (rgb.size() != n_bytes)
    fail(triptych::ErrorCode::kInvalidArgument, "picture of {}x{} pixels: expected {} bytes of RGB, got {}",
         width_px, height_px, n_bytes, rgb.size());
  triptych::Image image;
  image.width_px = width_px;
  image.height_px = height_px;
  image.rgb.assign(rgb.begin(), rgb.end());
  return image;
}

}  // namespace

Image Access::make_image(triptych::Image image, double decode_ms) {
  auto impl = std::make_shared<Image::Impl>();
  impl->media.frames.push_back(std::move(image));
  impl->media.decode_ms = decode_ms;
  return Image(std::move(impl));
}

Image::Image(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
Image::Image(const Image& other) noexcept = default;
Image& Image::operator=(const Image& other) noexcept = default;
Image::~Image() = default;

Image Image::from_file(const std::string& path) {
  return translate_errors([&] {
    const ProfileZone zone("image decode");
    const Stopwatch watch;
    const DecodeLimits limits;
    triptych::Image image =
        decode_image(MappedFile::open(path, limits.max_file_bytes)->bytes(), limits, path);
    return Access::make_image(std::move(image), watch.ms());
  });
}

Image Image::decode(std::span<const std::byte> bytes, const std::string& name) {
  return translate_errors([&] {
    const ProfileZone zone("image decode");
    const Stopwatch watch;
    triptych::Image image = decode_image(bytes, {}, name);
    return Access::make_image(std::move(image), watch.ms());
  });
}

Image Image::from_rgb(int width_px, int height_px, std::span<const std::uint8_t> rgb) {
  return translate_errors([&] { return Access::make_image(checked_image(width_px, height_px, rgb)); });
}

int Image::width_px() const noexcept { return inner(impl_->media).width_px; }
int Image::height_px() const noexcept { return inner(impl_->media).height_px; }
std::span<const std::uint8_t> Image::rgb() const noexcept { return inner(impl_->media).rgb; }

Image Image::with_regions(std::span<const Region> regions) const {
  return translate_errors([&] {
    std::vector<triptych::Region> wanted;
    for (const Region& region : regions) wanted.push_back(to_inner(region));
    triptych::Image copy = inner(impl_->media);
    draw_regions(copy, wanted);
    return Access::make_image(std::move(copy));
  });
}

std::vector<std::byte> Image::encode_png() const {
  return translate_errors([&] { return triptych::encode_png(inner(impl_->media)); });
}

}  // namespace triptych::api
