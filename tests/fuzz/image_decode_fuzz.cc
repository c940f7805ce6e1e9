// Any bytes through the image decoders: probing, decoding and animations, with small limits. An exception
// other than Error, or an Error that reports a fault of the program itself, is a finding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/error.h"
#include "media/image_decode.h"

namespace {

constexpr triptych::DecodeLimits kLimits{.max_file_bytes = 1 << 20,
                                         .max_pixels = 1 << 16,
                                         .max_side_px = 4096,
                                         .max_frames = 8,
                                         .max_animation_pixels = 1 << 18,
                                         .max_drawn_pixels = 1 << 19};

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

// PNG guards each chunk by a CRC, which random changes break: they would never get past it. This mends them.
void mend_png_checksums(std::uint8_t* data, std::size_t size) {
  constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  if (size < sizeof kSignature || std::memcmp(data, kSignature, sizeof kSignature) != 0) return;
  for (std::size_t at = sizeof kSignature; size - at >= 12;) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < 4; ++i) n = n << 8 | data[at + i];
    if (n > size - at - 12) return;
    std::uint32_t crc = ~0U;
    for (std::size_t i = at + 4; i < at + 8 + n; ++i) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i)
      data[at + 8 + n + i] = static_cast<std::uint8_t>(~crc >> (24 - 8 * i));
    at += 12 + n;
  }
}

}  // namespace

// libFuzzer's own changes; missing where something else runs the target.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  if (LLVMFuzzerMutate == nullptr) return size;
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 != 0) mend_png_checksums(data, size);
  return size;
}

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
  // Frames chosen by index: what is there comes whole, what is not is an error.
  triptych::AnimationInfo animation;
  if (!accepts([&] { animation = triptych::probe_animation(bytes, kLimits, "input"); })) return 0;
  const auto n_frames = static_cast<int>(animation.durations_ms.size());
  require(n_frames > 0);
  accepts([&] {
    const int wanted[] = {n_frames / 2, n_frames - 1, n_frames - 1};
    const auto frames = triptych::decode_frames(bytes, kLimits, "input", wanted);
    require(frames.size() == 3);
    for (const triptych::Image& frame : frames)
      require(is_whole(frame) && frame.width_px == animation.width_px &&
              frame.height_px == animation.height_px);
  });
  return 0;
}
