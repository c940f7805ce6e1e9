#include "cli/picture_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "api/impl.h"
#include "base/error.h"
#include "base/profile.h"
#include "base/stopwatch.h"
#include "cli/help_tree.h"
#include "cli/input_file.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych::cli {

void PictureFlags::add_to(CLI::App& app) {
  app.add_option("--max-image-pixels", max_pixels,
                 "Refuse pictures of more pixels before memory is taken for them")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 31).description(""))
      ->type_name("N")
      ->default_str(std::to_string(max_pixels))
      ->group(help_group::kMedia);
}

Image read_picture(const std::string& name, const PictureFlags& flags) {
  const ProfileZone zone("image decode");
  DecodeLimits limits;
  limits.max_pixels = flags.max_pixels;
  if (!is_stream(name))
    return decode_image(MappedFile::open(name, limits.max_file_bytes)->bytes(), limits, name);
  const std::string what = name == "-" ? "image on stdin" : name;
  const std::vector<std::byte> bytes = read_all(name, limits.max_file_bytes, what);
  if (bytes.empty()) fail(ErrorCode::kInvalidFile, "{}: no bytes came", what);
  return decode_image(bytes, limits, what);
}

api::Image open_picture(const std::string& name, const PictureFlags& flags) {
  const Stopwatch watch;
  Image image = read_picture(name, flags);
  return api::Access::make_image(std::move(image), watch.ms());
}

}  // namespace triptych::cli
