// Pictures that a user names.
#pragma once

#include <cstdint>
#include <string>

#include "api/public.h"

namespace CLI {
class App;
}
namespace triptych {
struct Image;
}

namespace triptych::cli {

/// --max-image-pixels.
struct PictureFlags {
  std::uint64_t max_pixels = 64'000'000;
  void add_to(CLI::App& app);
};

/// Reads and decodes a file; "-" is stdin, and a FIFO or device is read to its end. Throws Error naming the
/// file.
Image read_picture(const std::string& name, const PictureFlags& flags = {});
/// The same for the public interface.
api::Image open_picture(const std::string& name, const PictureFlags& flags = {});

}  // namespace triptych::cli
