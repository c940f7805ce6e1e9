#include "media/picture_names.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace triptych {

bool has_picture_ending(std::string_view name) {
  static constexpr std::string_view kEndings[] = {".png", ".jpg", ".jpeg", ".webp", ".bmp",
                                                  ".gif", ".tif", ".tiff", ".ppm"};
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(name.substr(dot));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

}  // namespace triptych
