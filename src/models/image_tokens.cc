#include "models/image_tokens.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych {

std::string_view to_string(ImageTokenSelection selection) noexcept {
  switch (selection) {
    case ImageTokenSelection::kDiversity:
      return "diversity";
    case ImageTokenSelection::kKeyNormLow:
      return "key-norm-low";
    case ImageTokenSelection::kKeyNormHigh:
      return "key-norm-high";
    case ImageTokenSelection::kAttention:
      return "attention";
  }
  return "?";
}

ImageTokenSelection parse_image_token_selection(std::string_view name) {
  for (const ImageTokenSelection selection :
       {ImageTokenSelection::kDiversity, ImageTokenSelection::kKeyNormLow, ImageTokenSelection::kKeyNormHigh,
        ImageTokenSelection::kAttention})
    if (name == to_string(selection)) return selection;
  fail(ErrorCode::kInvalidArgument,
       "\"{}\" is no selection of image tokens; there are diversity, key-norm-low, key-norm-high, attention",
       name);
}

std::int64_t ImageTokenOptions::n_kept(std::int64_t n) const noexcept {
  if (keeps_all() || n <= 1) return n;
  // 0.1 of 10 is 1, though 0.1 is a little more as a double.
  const double share = keep * static_cast<double>(n);
  return std::clamp(static_cast<std::int64_t>(std::ceil(share - 1e-9 * share)), std::int64_t{1}, n);
}

void ImageTokenOptions::validate() const {
  if (!(keep > 0) || !(keep <= 1))
    fail(ErrorCode::kInvalidArgument,
         "a share of {} of the image tokens cannot be kept: expected more than 0, at most 1", keep);
}

}  // namespace triptych
