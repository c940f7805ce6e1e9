// The picture that benchmarks decode.
#pragma once

#include <cstddef>
#include <vector>

namespace triptych {

/// A photograph-like picture as a JPEG file of quality 90, the same on every machine.
std::vector<std::byte> make_test_jpeg(int width_px, int height_px);

}  // namespace triptych
