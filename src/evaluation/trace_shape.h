// Shapes of traced values: the engine works on rows without padding, files of the reference have a batch
// dimension.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace triptych {

/// Pictures (or tiles) that a tower sees as a batch: [3, S, S] counts one, [n, 3, S, S] n. 0 where pixels are
/// rows of patches without a batch dimension.
std::int64_t n_stacked_pictures(const std::vector<MediaItem>& items);

/// Rows [n_rows, width] of a tap as the reference shapes them: [1, T, width] for the tokens of the prompt,
/// [n, n_rows / n, width] for a batch of pictures ([n, width] for one row each), else as it is.
Shape batched_shape(std::int64_t n_rows, std::int64_t width, std::int64_t n_tokens, std::int64_t n_pictures);

/// All pixels as one tensor: [n, ...] for pictures of equal shape, rows of patches one after another;
/// otherwise one tensor an item.
std::vector<Tensor> batch_pixels(const std::vector<MediaItem>& items);

}  // namespace triptych
