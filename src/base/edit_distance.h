// How far two words are apart, to name what was meant by one that is not known.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

/// Bytes to insert, remove or replace, or neighbours to swap (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The first of the nearest `names`, if it is so near that it may have been meant: up to a third of the
/// longer one's bytes differ, or one is the beginning of the other. Empty: none is.
std::string_view nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace triptych
