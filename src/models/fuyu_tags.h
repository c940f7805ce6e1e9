// Boxes and points in Fuyu's prompts and answers. A text has them as "<box>top, left, bottom, right</box>"
// and
// "<point>x, y</point>" in pixels of the picture as it is given; the model has <0x00> t l b r <0x01> and
// <0x02> x y <0x03>, each number one token: half the pixel's number in the picture as it was resized.
//   Reference: transformers, models/fuyu/processing_fuyu.py: scale_bbox_to_transformed_image,
//   scale_point_to_transformed_image and post_process_box_coordinates of 5.24. Releases of 2023 looked each
//   number up in the vocabulary, as is done here and as the answers are read; 5.24 writes the numbers of a
//   prompt without anything between them and lets the tokenizer cut that anew, which mixes them up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "media/normalize.h"
#include "models/model.h"

namespace triptych {

class FuyuTags {
 public:
  /// Without marks or numbers: finds nothing.
  FuyuTags() = default;
  /// `token_id` gives the id of a token by its content. `limit_px`: larger pictures are shrunk to fit.
  FuyuTags(const std::function<std::optional<std::int32_t>(std::string_view)>& token_id, SizePx limit_px);

  /// Tags of a text, and the control characters that would become marks (these stand for nothing). What has
  /// not the form stays text; without a picture every tag does. Throws Error(kInvalidArgument) for a
  /// coordinate that has no token.
  std::vector<TypedTag> find_typed(std::string_view text, const MediaPlan* picture) const;
  /// As Model::read_answer_tag.
  AnswerTag read_answer(std::span<const std::int32_t> ids, const MediaPlan* picture) const;
  std::vector<Region> find_regions(std::span<const std::int32_t> ids, const MediaPlan& picture) const;

 private:
  struct Form {
    std::string_view open, close;  // in text
    std::size_t n_numbers = 0;
    std::int32_t open_id = -1, close_id = -1;
  };
  /// The numbers of a tag at the start of `ids`, as tokens; n_ids == 0 where there is none.
  struct Numbers {
    bool undecided = false;
    std::size_t n_ids = 0;
    const Form* form = nullptr;
    std::vector<int> values;
  };
  Numbers read_numbers(std::span<const std::int32_t> ids) const;
  std::vector<int> in_pixels(const Numbers& numbers, const MediaPlan* picture) const;
  std::int32_t coordinate_id(double value, const MediaPlan& picture) const;

  std::vector<Form> forms_;
  SizePx limit_px_;
  std::unordered_map<std::int32_t, int> number_of_id_;
  std::vector<std::int32_t> id_of_number_;  // -1: no token
};

}  // namespace triptych
