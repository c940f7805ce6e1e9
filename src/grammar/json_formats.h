// Values of the keyword "format", as patterns of whole strings.
#pragma once

#include <string>
#include <string_view>

namespace triptych {

/// Empty when the format is not known.
std::string_view pattern_of_format(std::string_view format);
/// The known ones, for errors.
std::string known_formats();

}  // namespace triptych
