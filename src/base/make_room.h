// Memory of a vector taken before what must not fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace triptych {

/// Room for `n` more elements, so that adding them cannot fail. Grows as push_back does.
template <typename T>
void make_room(std::vector<T>& list, std::size_t n) {
  if (list.capacity() - list.size() < n) list.reserve(std::max(2 * list.capacity(), list.size() + n));
}

}  // namespace triptych
