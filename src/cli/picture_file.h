// Pictures that a user names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace triptych {
struct Image;
}

namespace triptych::cli {

/// The bytes of a picture on stdin, up to the limit of decoding. Throws Error.
std::vector<std::byte> read_stdin_picture();

/// Reads and decodes a file; "-" is stdin. Throws Error naming the file.
Image read_picture(const std::string& name);

}  // namespace triptych::cli
