// A picture to decode: smooth shades, edges and some noise, as photographs have; encoded with libjpeg.
// jpeglib.h needs the two headers before it:
// clang-format off
#include <stddef.h>
#include <stdio.h>
#include <jpeglib.h>
// clang-format on
#include "benchmark/test_jpeg.h"

#include <setjmp.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/rng.h"

namespace triptych {
namespace {

std::uint8_t shade(double value, double noise) {
  return static_cast<std::uint8_t>(std::fmin(255.0, std::fmax(0.0, value + noise)));
}

std::vector<std::uint8_t> make_pixels(int width_px, int height_px, std::int64_t group) {
  Rng rng(7, static_cast<std::uint64_t>(group));
  std::vector<std::uint8_t> out;
  out.reserve(static_cast<std::size_t>(width_px) * static_cast<std::size_t>(height_px) * 3);
  for (int y = 0; y < height_px; ++y)
    for (int x = 0; x < width_px; ++x) {
      const bool inside = (x / 97 + y / 61) % 5 == 0;
      const double noise = 16.0 * (rng.uniform() - 0.5);
      out.push_back(shade(128.0 + 80.0 * std::sin(x * 0.011) + (inside ? 60.0 : 0.0), noise));
      out.push_back(shade(110.0 + 70.0 * std::cos(y * 0.017) - (inside ? 30.0 : 0.0), noise));
      out.push_back(shade(90.0 + 60.0 * std::sin((x + y) * 0.007), noise));
    }
  return out;
}

// libjpeg reports faults by longjmp, so this owns nothing; false then.
struct Encoder {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jmp_buf on_error;
  unsigned char* data;
  unsigned long size;
};

bool encode(Encoder& e, std::uint8_t* pixels, int width_px, int height_px) {
  e.jpeg.err = jpeg_std_error(&e.errors);
  e.errors.error_exit = [](j_common_ptr info) {
    longjmp(static_cast<Encoder*>(info->client_data)->on_error, 1);
  };
  e.jpeg.client_data = &e;
  if (setjmp(e.on_error) != 0) return false;
  jpeg_create_compress(&e.jpeg);
  jpeg_mem_dest(&e.jpeg, &e.data, &e.size);
  e.jpeg.image_width = static_cast<JDIMENSION>(width_px);
  e.jpeg.image_height = static_cast<JDIMENSION>(height_px);
  e.jpeg.input_components = 3;
  e.jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&e.jpeg);
  jpeg_set_quality(&e.jpeg, 90, TRUE);
  jpeg_start_compress(&e.jpeg, TRUE);
  while (e.jpeg.next_scanline < e.jpeg.image_height) {
    JSAMPROW row = pixels + static_cast<std::size_t>(e.jpeg.next_scanline) * e.jpeg.image_width * 3;
    jpeg_write_scanlines(&e.jpeg, &row, 1);
  }
  jpeg_finish_compress(&e.jpeg);
  return true;
}

}  // namespace

std::vector<std::byte> make_test_jpeg(int width_px, int height_px, std::int64_t group) {
  std::vector<std::uint8_t> pixels = make_pixels(width_px, height_px, group);
  const auto encoder = std::make_unique<Encoder>();
  *encoder = {};
  const bool done = encode(*encoder, pixels.data(), width_px, height_px);
  std::vector<std::byte> out;
  if (done) {
    const auto* bytes = reinterpret_cast<const std::byte*>(encoder->data);
    out.assign(bytes, bytes + encoder->size);
  }
  jpeg_destroy_compress(&encoder->jpeg);
  std::free(encoder->data);
  if (!done) fail(ErrorCode::kInternal, "the test picture of {}x{} cannot be encoded", width_px, height_px);
  return out;
}

}  // namespace triptych
