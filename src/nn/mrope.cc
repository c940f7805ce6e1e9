#include "nn/mrope.h"

#include <algorithm>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxPosition = (std::int64_t{1} << 31) - 2;  // one more must still fit

std::int64_t temporal_offset(const MropeMedia& m, int t) {
  const float offset = static_cast<float>(t) * m.temporal_step;
  if (!(offset >= 0.0F && offset < 2147483648.0F))
    fail(ErrorCode::kInvalidArgument,
         "a video of {} temporal steps, {} positions apart, leaves the range of positions", m.grid_t,
         m.temporal_step);
  return static_cast<std::int64_t>(offset);
}

}  // namespace

MropePositions mrope_positions(std::int64_t n_tokens, std::span<const MropeMedia> media) {
  TRIPTYCH_CHECK(n_tokens >= 0 && n_tokens <= kMaxPosition, "[mrope] {} tokens", n_tokens);
  MropePositions out;
  const auto n = static_cast<std::size_t>(n_tokens);
  out.positions.resize(3 * n);
  const std::span<std::int32_t> temporal(out.positions.data(), n);
  const std::span<std::int32_t> height(out.positions.data() + n, n);
  const std::span<std::int32_t> width(out.positions.data() + 2 * n, n);
  std::size_t row = 0;
  std::int64_t next = 0;  // position of the next text token
  std::int64_t largest = -1;
  const auto put = [&](std::int64_t t, std::int64_t h, std::int64_t w) {
    largest = std::max({largest, t, h, w});
    if (largest > kMaxPosition)
      fail(ErrorCode::kInvalidArgument,
           "position {} is out of range: a video's frames are too far apart in time", largest);
    temporal[row] = static_cast<std::int32_t>(t);
    height[row] = static_cast<std::int32_t>(h);
    width[row] = static_cast<std::int32_t>(w);
    ++row;
  };
  for (const MropeMedia& m : media) {
    TRIPTYCH_CHECK(m.first_row >= static_cast<std::int64_t>(row) && m.grid_t > 0 && m.grid_h > 0 &&
                       m.grid_w > 0 && m.first_row + std::int64_t{m.grid_t} * m.grid_h * m.grid_w <= n_tokens,
                   "[mrope] grid {}x{}x{} at row {} of {}", m.grid_t, m.grid_h, m.grid_w, m.first_row,
                   n_tokens);
    while (static_cast<std::int64_t>(row) < m.first_row) {
      put(next, next, next);  // advances row
      ++next;
    }
    for (int t = 0; t < m.grid_t; ++t) {
      const std::int64_t at = next + temporal_offset(m, t);
      for (int h = 0; h < m.grid_h; ++h)
        for (int w = 0; w < m.grid_w; ++w) put(at, next + h, next + w);
    }
    next += std::max(m.grid_h, m.grid_w);
  }
  while (row < n) {
    put(next, next, next);
    ++next;
  }
  out.next_position = static_cast<std::int32_t>(largest + 1);
  return out;
}

}  // namespace triptych
