// The image processor of CLIP and its close relatives (LLaVA, BLIP, SigLIP): resize, centre crop, rescale,
// normalise, and LLaVA's padding to a square. One picture gives one [3, H, W] tensor. Reference:
// transformers 5.24, image_processing_pil_clip.py, image_processing_pil_llava.py,
// image_processing_pil_blip.py.
#pragma once

#include <optional>

#include "base/json.h"
#include "media/image_resize.h"
#include "media/normalize.h"
#include "tensor/tensor.h"

namespace triptych {

class ThreadPool;

struct ClipImageProcessor {
  bool do_pad = false;  // to a square, in the mean colour
  bool do_resize = true;
  std::optional<int> shortest_edge_px;  // else size_px, aspect ratio ignored
  SizePx size_px{224, 224};
  Filter resample = Filter::kBicubic;
  bool do_center_crop = true;
  SizePx crop_size_px{224, 224};
  NormalizeOptions normalize;

  /// Reads a preprocessor_config.json. Class defaults depend on image_processor_type (CLIP: shortest edge
  /// 224, crop 224; BLIP 384x384 and SigLIP 224x224 without crop).
  static ClipImageProcessor parse(const JsonView& config);
  /// CLIP's own for a tower of this size: shortest edge, centre crop, its mean and deviation.
  static ClipImageProcessor clip(int image_size_px);

  /// Size of the result when it is the same for all pictures; nothing when it depends on the picture.
  std::optional<SizePx> fixed_size() const;
  /// [3, H, W] float32.
  Tensor operator()(const Image& image, ThreadPool* pool) const;
};

/// Reads mean, std, rescale_factor and their switches, with OpenAI CLIP's values as defaults.
NormalizeOptions parse_normalize(const JsonView& config);

}  // namespace triptych
