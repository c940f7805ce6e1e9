// Any bytes through the image decoders: probing, decoding and animations, with small limits. An exception
// other than Error, or an Error that reports a fault of the program itself, is a finding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "media/image_decode.h"

namespace {

constexpr triptych::DecodeLimits kLimits{.max_file_bytes = 1 << 20,
                                         .max_pixels = 1 << 16,
                                         .max_side_px = 4096,
                                         .max_frames = 8,
                                         .max_animation_pixels = 1 << 18};

void require(bool condition) {
  if (!condition) std::abort();
}

bool is_whole(const triptych::Image& image) {
  return image.width_px > 0 && image.height_px > 0 &&
         image.rgb.size() == image.row_bytes() * static_cast<std::size_t>(image.height_px);
}

// Runs step(); true when it did not refuse the input. A failed check inside the library is a fault, not a
// refusal.
template <typename Step>
bool accepts(const Step& step) {
  try {
    step();
    return true;
  } catch (const triptych::Error& error) {
    require(error.code() != triptych::ErrorCode::kInternal);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  triptych::ImageInfo info;
  const bool is_probed = accepts([&] { info = triptych::probe_image(bytes, kLimits, "input"); });
  const bool is_decoded = accepts([&] {
    const triptych::Image image = triptych::decode_image(bytes, kLimits, "input");
    require(is_whole(image) && image.width_px == info.width_px && image.height_px == info.height_px);
  });
  require(is_probed || !is_decoded);
  accepts([&] {
    for (const triptych::Frame& frame : triptych::decode_animation(bytes, kLimits, "input"))
      require(is_whole(frame.image));
  });
  return 0;
}
