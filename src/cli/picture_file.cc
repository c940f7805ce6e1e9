#include "cli/picture_file.h"

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/profile.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych::cli {

std::vector<std::byte> read_stdin_picture() {
  const std::uint64_t max_bytes = DecodeLimits().max_file_bytes;
  std::vector<std::byte> out;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  for (;;) {
    const std::size_t n = std::fread(piece.data(), 1, piece.size(), stdin);
    out.insert(out.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
    if (out.size() > max_bytes)
      fail(ErrorCode::kInvalidArgument, "image on stdin: more than the limit of {} bytes", max_bytes);
    if (n == 0) break;
  }
  if (std::ferror(stdin) != 0) fail(ErrorCode::kIo, "image on stdin: cannot be read");
  if (out.empty()) fail(ErrorCode::kInvalidFile, "image on stdin: no bytes came");
  return out;
}

Image read_picture(const std::string& name) {
  const ProfileZone zone("image decode");
  const DecodeLimits limits;
  if (name == "-") return decode_image(read_stdin_picture(), limits, "image on stdin");
  return decode_image(MappedFile::open(name, limits.max_file_bytes)->bytes(), limits, name);
}

}  // namespace triptych::cli
