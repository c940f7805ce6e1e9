// Pictures to bytes of a file format.
#pragma once

#include <cstddef>
#include <vector>

#include "media/image.h"

namespace triptych {

/// An 8-bit RGB PNG without loss. The picture must have pixels. Throws Error(kInvalidArgument) for sides
/// beyond what libpng writes (1,000,000), kOutOfMemory.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace triptych
