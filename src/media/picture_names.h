// Which files of a folder are taken for pictures: by their names, since a folder may hold anything.
#pragma once

#include <string_view>

namespace triptych {

/// Whether the name ends like a format that decode_image reads, in any case: .png, .jpg, .jpeg, .webp, .bmp,
/// .gif, .tif, .tiff, .ppm.
bool has_picture_ending(std::string_view name);

}  // namespace triptych
