// A picture to decode: smooth shades, edges and some noise, as photographs have; encoded with libjpeg.
#include <jpeglib.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/rng.h"
#include "cli/bench.h"

namespace triptych::cli {
namespace {

std::uint8_t shade(double value, double noise) {
  return static_cast<std::uint8_t>(std::fmin(255.0, std::fmax(0.0, value + noise)));
}

void fill_row(std::vector<std::uint8_t>& row, int y, int width_px, Rng& rng) {
  for (int x = 0; x < width_px; ++x) {
    const bool inside = (x / 97 + y / 61) % 5 == 0;
    const double noise = 16.0 * (rng.uniform() - 0.5);
    const auto at = static_cast<std::size_t>(x) * 3;
    row[at] = shade(128.0 + 80.0 * std::sin(x * 0.011) + (inside ? 60.0 : 0.0), noise);
    row[at + 1] = shade(110.0 + 70.0 * std::cos(y * 0.017) - (inside ? 30.0 : 0.0), noise);
    row[at + 2] = shade(90.0 + 60.0 * std::sin((x + y) * 0.007), noise);
  }
}

}  // namespace

std::vector<std::byte> make_test_jpeg(int width_px, int height_px) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = [](j_common_ptr info) {
    char message[JMSG_LENGTH_MAX];
    info->err->format_message(info, message);
    fail(ErrorCode::kInvalidArgument, "test picture: {}", message);
  };
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  const auto clean_up = [&] {
    jpeg_destroy_compress(&jpeg);
    std::free(data);
  };
  try {
    jpeg_mem_dest(&jpeg, &data, &size);
    jpeg.image_width = static_cast<JDIMENSION>(width_px);
    jpeg.image_height = static_cast<JDIMENSION>(height_px);
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    Rng rng(7);
    std::vector<std::uint8_t> row(static_cast<std::size_t>(width_px) * 3);
    for (int y = 0; y < height_px; ++y) {
      fill_row(row, y, width_px, rng);
      JSAMPROW rows[] = {row.data()};
      jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
  } catch (...) {
    clean_up();
    throw;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> out(bytes, bytes + size);
  clean_up();
  return out;
}

}  // namespace triptych::cli
