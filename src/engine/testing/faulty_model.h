// A tiny model of random weights that fails where a test wants it to.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "engine/load.h"
#include "models/testing/tiny_models.h"
#include "weights/weight_providers.h"

namespace triptych::test {

/// What a test does to a step; may throw.
struct Faults {
  std::function<void(const Batch&)> before_forward;
  std::function<void(const Batch&, TensorView logits)> after_forward;
  std::function<void(std::span<const MediaItem>)> before_encode;
};

/// A model of another's making, with faults.
class FaultyModel final : public Model {
 public:
  FaultyModel(std::unique_ptr<Model> model, std::shared_ptr<Faults> faults)
      : model_(std::move(model)), faults_(std::move(faults)) {}

  const ModelInfo& info() const override { return model_->info(); }
  MediaPlan plan_media(const MediaMeta& meta, const MediaOptions& options) const override {
    return model_->plan_media(meta, options);
  }
  Tensor preprocess(std::span<const Image> frames, const MediaPlan& plan, ThreadPool* pool) const override {
    return model_->preprocess(frames, plan, pool);
  }
  PromptLayout expand_prompt(std::span<const std::int32_t> ids,
                             std::span<const MediaPlan> plans) const override {
    return model_->expand_prompt(ids, plans);
  }
  TensorView encode_media(ExecContext& cx, std::span<const MediaItem> items) const override {
    if (faults_->before_encode) faults_->before_encode(items);
    return model_->encode_media(cx, items);
  }
  TensorView forward(ExecContext& cx, const Batch& batch) const override {
    if (faults_->before_forward) faults_->before_forward(batch);
    TensorView logits = model_->forward(cx, batch);
    if (faults_->after_forward) faults_->after_forward(batch, logits);
    return logits;
  }
  const PartSizes& part_sizes() const override { return model_->part_sizes(); }

 private:
  std::unique_ptr<Model> model_;
  std::shared_ptr<Faults> faults_;
};

/// A tiny model of a family with faults, and what it borrows.
class FaultyTinyModel {
 public:
  explicit FaultyTinyModel(std::string_view family) : FaultyTinyModel(tiny_files(family, Geometry::kSmall)) {}
  explicit FaultyTinyModel(TinyFiles files, const CpuPolicy& policy = {})
      : files_(std::move(files)), weights_(DType::kF32, 1) {
    auto backend = make_cpu_backend({.n_threads = 1, .pin = false, .isa = std::nullopt, .policy = policy});
    ModelSource source{.config = JsonView(files_.config, "config.json")};
    if (!files_.preprocessor.is_null())
      source.preprocessor = JsonView(files_.preprocessor, "preprocessor_config.json");
    source.weights = &weights_;
    source.backend = backend.get();
    auto model = ModelRegistry::global().find(source.config).load(source);
    loaded_ =
        LoadedModel::from_parts(std::move(backend), std::make_unique<FaultyModel>(std::move(model), faults));
  }

  LoadedModel& operator*() { return *loaded_; }

  std::shared_ptr<Faults> faults = std::make_shared<Faults>();

 private:
  TinyFiles files_;
  RandomWeights weights_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace triptych::test
