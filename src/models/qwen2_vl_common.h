// What Qwen2-VL, Qwen2.5-VL and Qwen3-VL share: pictures and videos on their way to the tower, the patches
// that go in, the linears of a merger, and the language model. A family adds the blocks of its tower.
// Reference: transformers 5.24, models/qwen2_vl/modeling_qwen2_vl.py,
// models/qwen2_5_vl/modeling_qwen2_5_vl.py. Shapes: P patches, Dv tower width, m merge size, D language
// width, T tokens, V vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/qwen2_image_processor.h"
#include "models/qwen2_prompt.h"
#include "nn/llama_decoder.h"
#include "nn/norm.h"
#include "nn/qwen_vision.h"

namespace triptych {

struct Qwen2VlConfig {
  LlamaConfig text;
  QwenVisionConfig vision;
  std::int64_t vision_intermediate = 0;  // Fv, width inside a block's feed-forward part
  Activation vision_act = Activation::kNone;
  int tokens_per_second = 0;  // of a video (Qwen2PromptRules)
  Qwen2VisionTokens tokens;
  Qwen2ImageProcessor images, videos;

  /// All but Fv, its activation and tokens_per_second, which the families spell differently; so they do
  /// `merged_width_key`, the field of vision_config that repeats the language model's width, checked here.
  /// Nor `videos`.
  static Qwen2VlConfig parse(const ModelSource& source, const LlamaConfig& text,
                             const QwenVisionConfig& vision, std::string_view merged_width_key);
  /// What says how videos are preprocessed: a file of its own or the pictures'.
  static const std::optional<JsonView>& video_file(const ModelSource& source) {
    return source.video_preprocessor ? source.video_preprocessor : source.preprocessor;
  }
  Qwen2ImageProcessor::Geometry geometry() const {
    return {vision.patch_size_px, vision.temporal_patch_size, vision.merge_size};
  }
};

/// A block of the towers of Qwen2-VL and Qwen3-VL.
struct LayerNormBlock {
  LayerNorm norm1;
  std::unique_ptr<LinearWeight> qkv;   // [3 Dv, Dv]
  std::unique_ptr<LinearWeight> proj;  // [Dv, Dv]
  LayerNorm norm2;
  std::unique_ptr<LinearWeight> fc1;  // [Fv, Dv]
  std::unique_ptr<LinearWeight> fc2;  // [Dv, Fv]

  struct Call {
    const RopeAngles& rope;
    std::span<const std::int32_t> segments;  // of attention
    int n_heads;
    Activation act;
  };
  static LayerNormBlock bind(Binder binder, std::string_view fc1, std::string_view fc2,
                             const Qwen2VlConfig& config, float eps);
  /// h [P, Dv] in place; inside of ExecContext::block.
  void operator()(ExecContext& cx, TensorView h, const Call& call) const;
};

/// The two linears of a merger, behind its norm.
struct MergerMlp {
  std::unique_ptr<LinearWeight> fc1;  // [m m Dv, m m Dv]
  std::unique_ptr<LinearWeight> fc2;  // [D, m m Dv]

  static MergerMlp bind(Binder& binder, std::string_view fc1, std::string_view fc2,
                        const Qwen2VlConfig& config);
  /// x [P / (m m), m m Dv] -> out [P / (m m), D].
  void operator()(ExecContext& cx, const LinearInput& x, TensorView out) const;
};

class Qwen2VlModel : public Model {
 public:
  const ModelInfo& info() const override { return info_; }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override;
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override;
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override;
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override;
  TensorView forward(ExecContext& cx, const Batch& batch) const override;
  const PartSizes& part_sizes() const override { return sizes_; }

 protected:
  static constexpr float kTowerEps = 1e-6F;  // of every norm in the tower; not in the configuration
  bool splits_videos_ = false;               // as Qwen2PromptRules

  /// Fills info() but for the family's name and regions.
  explicit Qwen2VlModel(Qwen2VlConfig config);
  // Weights, in the order in which they are bound.
  /// visual.patch_embed; returns the scope of the tower.
  Binder bind_patch_embed(const ModelSource& source, Bias bias);
  /// The scope of a merger below "visual".
  Binder merger_scope(const ModelSource& source, std::string_view name = "merger");
  void bind_language_model(const ModelSource& source);

  /// Columns of the rows that encode_frames gives.
  virtual std::int64_t media_width() const { return config_.text.hidden_size; }
  /// The tower and the merger: frames of P patches in all -> out [P / (m m), media_width()].
  virtual void encode_frames(ExecContext& cx, std::span<const VisionFrame> frames, TensorView out) const = 0;
  /// [P, Dv]; segments as frame_segments gives them.
  TensorView embed_patches(ExecContext& cx, std::span<const VisionFrame> frames,
                           std::span<const std::int32_t> segments) const;
  /// cos and sin [P, Dh / 2] of the patches.
  RopeAngles rope_angles(ExecContext& cx, std::span<const VisionFrame> frames) const;
  /// x [P, Dv] with the patches of a merge block in one row [P / (m m), m m Dv].
  TensorView joined(const TensorView& x) const {
    return x.reshape({x.dim(0) * x.dim(1) / config_.vision.merged_width(), config_.vision.merged_width()});
  }

  Qwen2VlConfig config_;
  ModelInfo info_;
  LlamaDecoder language_model_;

 private:
  PartSizes sizes_;
  std::unique_ptr<LinearWeight> patch_embed_;  // [Dv, 3 tp p p]
  std::vector<float> inverse_frequencies_;     // [Dh / 4]
};

}  // namespace triptych
