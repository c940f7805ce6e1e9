// Pictures that a user names.
#pragma once

#include <string>

#include "media/image.h"

namespace triptych::cli {

/// Reads and decodes a file; "-" is stdin. Throws Error naming the file.
Image read_picture(const std::string& name);

}  // namespace triptych::cli
