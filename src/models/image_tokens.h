// How many of a picture's tokens stay for the answer, and by what they are chosen (--image-tokens-keep).
#pragma once

#include <cstdint>
#include <string_view>

namespace triptych {

/// What decides which tokens of a picture or video stay.
enum class ImageTokenSelection {
  /// Its rows before the language model, text unseen: those that stand out from the picture's mean and from
  /// each
  /// other (greedy choice of a determinantal point process, as CDPruner makes it, without its text
  /// relevance).
  /// The others are never computed.
  kDiversity,
  /// The norms of its keys once it is in the cache: the lowest stay (Devoto et al. 2024, "A simple and
  /// effective
  /// L2 norm-based strategy for KV cache compression": low norms are attended to), or the highest. The others
  /// leave the cache before the text behind it is computed.
  kKeyNormLow,
  kKeyNormHigh,
  /// The attention that its keys receive from the rows of the text behind it, averaged over layers, heads and
  /// rows. The others leave the cache before the last row of the prompt.
  kAttention,
};

/// "diversity", "key-norm-low", "key-norm-high" or "attention".
std::string_view to_string(ImageTokenSelection selection) noexcept;
/// Throws Error(kInvalidArgument) that lists the names.
ImageTokenSelection parse_image_token_selection(std::string_view name);

struct ImageTokenOptions {
  double keep = 1;  // share of the tokens of each picture and video, in (0, 1]
  ImageTokenSelection selection = ImageTokenSelection::kDiversity;

  bool keeps_all() const noexcept { return keep >= 1; }
  /// Of n tokens, rounded up.
  std::int64_t n_kept(std::int64_t n) const noexcept;
  /// Throws Error(kInvalidArgument) for a share that is none.
  void validate() const;

  /// Without effect they are all equal.
  friend bool operator==(const ImageTokenOptions& a, const ImageTokenOptions& b) noexcept {
    return (a.keeps_all() && b.keeps_all()) || (a.keep == b.keep && a.selection == b.selection);
  }
};

}  // namespace triptych
