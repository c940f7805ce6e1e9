// Pictures that a user names.
#pragma once

#include <string>

#include "media/image.h"

namespace triptych::cli {

/// Reads and decodes a file; "-" is stdin. Throws Error naming the file.
Image read_picture(const std::string& name);

/// Throws Error(kIo) naming the file when write_png could not make it. Changes nothing.
void check_png_target(const std::string& name);
/// Writes a PNG file, whole or not at all. Throws Error(kIo) naming the file.
void write_png(const std::string& name, const Image& image);

}  // namespace triptych::cli
