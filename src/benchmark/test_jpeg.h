// The picture that benchmarks decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace triptych {

/// A photograph-like picture as a JPEG file of quality 90, the same on every machine; of another `group` it
/// has other noise.
std::vector<std::byte> make_test_jpeg(int width_px, int height_px, std::int64_t group = 0);

}  // namespace triptych
