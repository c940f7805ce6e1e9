// Runs a model family on a directory of reference values (golden.json, one safetensors file a case) without
// the engine: pictures through the family's own processor, the tower, the prompt and greedy steps, compared
// tap by tap.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "backend/memory.h"
#include "base/error.h"
#include "base/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "media/image_decode.h"
#include "models/model.h"
#include "weights/weight_providers.h"

namespace triptych::test {

/// Keeps copies of all taps; rows that come later under the same name are appended.
class TapCopies : public ExecObserver {
 public:
  void on_tap(std::string_view name, const TensorView& value) override {
    const Tensor copy = Tensor::copy_of(value);
    auto& to = taps[std::string(name)];
    to.insert(to.end(), copy.f32(), copy.f32() + copy.view().numel());
  }
  std::map<std::string, std::vector<float>> taps;
};

/// Largest difference relative to the largest magnitude of the reference; infinite when sizes differ.
inline double relative_error(std::span<const float> ours, const TensorView& reference) {
  if (static_cast<std::int64_t>(ours.size()) != reference.numel()) return INFINITY;
  double worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double expected = static_cast<double>(reference.cf32()[i]);
    const double difference = std::fabs(static_cast<double>(ours[i]) - expected);
    if (!(difference <= worst)) worst = difference;  // a NaN stays
    largest = std::max(largest, std::fabs(expected));
  }
  return largest > 0 ? worst / largest : worst;
}

class GoldenModel {
 public:
  /// `change` may alter the configuration and the table of weights before the model is bound.
  using Change = std::function<void(Json& config, WeightTable& weights)>;
  explicit GoldenModel(const std::filesystem::path& directory, const Change& change = {})
      : GoldenModel(directory, make_cpu_backend({.n_threads = 2, .pin = false, .isa = std::nullopt}),
                    change) {}
  GoldenModel(const std::filesystem::path& directory, std::unique_ptr<Backend> backend,
              const Change& change = {})
      : directory_(directory), backend_(std::move(backend)), arena_(make_arena(*backend_)) {
    config_ = read_json("config.json").value();
    table_ = read_safetensors(directory / "model.safetensors");
    if (change) change(config_, table_);
    for (const auto& [name, json] : {std::pair{"preprocessor_config.json", &preprocessor_},
                                     std::pair{"video_preprocessor_config.json", &video_preprocessor_},
                                     std::pair{"processor_config.json", &processor_}})
      *json = read_json(name);
    const auto view = [](const std::optional<Json>& json, const char* name) {
      return json ? std::optional<JsonView>(JsonView(*json, name)) : std::nullopt;
    };
    ModelSource source{.config = JsonView(config_, "config.json"),
                       .preprocessor = view(preprocessor_, "preprocessor_config.json"),
                       .video_preprocessor = view(video_preprocessor_, "video_preprocessor_config.json"),
                       .processor = view(processor_, "processor_config.json"),
                       .token_id = {}};
    if (source.processor) {
      if (const auto nested = source.processor->find("image_processor")) source.preprocessor = nested;
      if (const auto nested = source.processor->find("video_processor")) source.video_preprocessor = nested;
    }
    weights_ = std::make_unique<TableWeights>(table_);
    source.weights = weights_.get();
    source.backend = backend_.get();
    model_ = ModelRegistry::global().find(source.config).load(source);
    check_all_used(*weights_);
  }

  const Model& model() const { return *model_; }
  Backend& backend() { return *backend_; }

  std::vector<Json> cases(const std::filesystem::path& golden) const {
    std::ifstream file(golden / "golden.json");
    return Json::parse(file).at("cases").get<std::vector<Json>>();
  }

  struct Result {
    double worst = 0;
    std::string worst_name;
    int n_taps = 0;
    int n_greedy_equal = 0;
    double pixels = 0;          // largest difference, absolute
    std::int64_t n_pixels = 0;  // values compared; small copies of a set may leave them out
  };

  /// Runs one case of `golden` (the directory with golden.json) and fails the test where it differs.
  Result run(const std::filesystem::path& golden, const Json& one, double tolerance = 1e-4,
             const MediaOptions& options = {}) {
    Result out;
    const WeightTable reference =
        read_safetensors(golden / (one.at("name").get<std::string>() + ".safetensors"));
    const auto check = [&](const std::string& name, std::span<const float> ours, const TensorView& expected) {
      const double error = relative_error(ours, expected);
      EXPECT_LE(error, tolerance) << one.at("name") << " " << name;
      if (!(error <= out.worst)) {
        out.worst = error;
        out.worst_name = name;
      }
    };
    std::vector<MediaItem> items = read_media(golden, one, options);
    compare_pixels(items, reference, out);

    const auto golden_ids = one.at("input_ids").get<std::vector<std::int32_t>>();
    std::vector<MediaPlan> plans;
    for (const MediaItem& item : items) plans.push_back(item.plan);
    const PromptLayout layout = model_->expand_prompt(collapse(golden_ids), plans);
    EXPECT_EQ(layout.input_ids, golden_ids) << one.at("name");

    TapCopies taps;
    const std::vector<float> logits = forward_prompt(layout, items, &taps);
    for (const WeightEntry& entry : reference) {
      if (!entry.name.starts_with("tap.")) continue;
      ++out.n_taps;
      const auto found = taps.taps.find(entry.name.substr(4));
      if (found == taps.taps.end()) {
        ADD_FAILURE() << "no tap " << entry.name;
      } else {
        check(entry.name, found->second, entry.view);
      }
    }
    check("logits", logits, reference.at("logits").view);
    greedy(layout, logits, one, reference, check, out);
    return out;
  }

  /// Prompt in one step from an empty cache; logits of all rows.
  std::vector<float> forward_prompt(const PromptLayout& layout, const std::vector<MediaItem>& items,
                                    ExecObserver* observer) {
    const auto n = static_cast<std::int32_t>(layout.input_ids.size());
    const ModelInfo& info = model_->info();
    cache_ = backend_->make_kv_cache({.n_layers = info.n_layers,
                                      .n_kv_heads = info.n_kv_heads,
                                      .head_dim = info.head_dim,
                                      .page_tokens = kPageTokens,
                                      .n_pages = (n + 64) / kPageTokens + 1,
                                      .dtype = KvDType::kF32});
    pages_.clear();
    for (int i = cache_->geometry().n_pages; i-- > 0;) pages_.push_back(i);  // not in order, to be sure
    n_cached_ = 0;
    Tensor rows;
    if (!items.empty()) {
      arena_.reset();
      ExecContext cx(*backend_, arena_, observer);
      rows = copy_operand(*backend_, model_->encode_media(cx, items));
    }
    std::vector<EmbeddingOverride> overrides;
    std::vector<std::vector<std::int32_t>> at_rows(layout.runs.size());
    for (std::size_t i = 0; i < layout.runs.size(); ++i) {
      const MediaRun& run = layout.runs[i];
      std::int64_t first = run.first_media_row;
      for (int m = 0; m < run.media_index; ++m) first += items[static_cast<std::size_t>(m)].plan.n_tokens;
      for (std::int64_t r = 0; r < run.n_rows; ++r)
        at_rows[i].push_back(static_cast<std::int32_t>(run.first_prompt_row + r));
      overrides.push_back({.rows = rows.view().rows(first, first + run.n_rows), .at_rows = at_rows[i]});
    }
    return step(layout.input_ids, layout.positions, overrides, observer);
  }

  /// One more token; its logits.
  std::vector<float> forward_next(std::int32_t id, std::int32_t position) {
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(model_->info().n_position_axes),
                                              position);
    return step({&id, 1}, positions, {}, nullptr);
  }

  std::vector<MediaItem> read_media(const std::filesystem::path& golden, const Json& one,
                                    const MediaOptions& options) {
    std::vector<Image> images;
    for (const Json& part : one.at("parts"))
      if (const auto name = part.is_object() ? part.value("image", "") : part.get<std::string>();
          name.ends_with(".png")) {
        const auto file = MappedFile::open(golden / name);
        images.push_back(decode_image(file->bytes(), {}, name));
      }
    const bool is_video = one.value("video", false);
    std::vector<MediaItem> items;
    const std::size_t n_items = is_video ? 1 : images.size();
    const std::size_t n_frames = is_video ? images.size() : 1;
    for (std::size_t i = 0; i < n_items; ++i) {
      MediaItem item;
      item.plan = model_->plan_media({.width_px = images[i].width_px,
                                      .height_px = images[i].height_px,
                                      .n_frames = static_cast<int>(n_frames),
                                      .frames_per_s = is_video ? one.at("fps").get<double>() : 0.0,
                                      .is_video = is_video},
                                     options);
      item.pixels =
          model_->preprocess(std::span<const Image>(images).subspan(i, n_frames), item.plan, nullptr);
      items.push_back(std::move(item));
    }
    return items;
  }

  /// A run of one placeholder becomes one of it.
  std::vector<std::int32_t> collapse(const std::vector<std::int32_t>& ids) const {
    std::vector<std::int32_t> out;
    for (const std::int32_t id : ids) {
      const bool is_placeholder = id == model_->info().image_token_id || id == model_->info().video_token_id;
      if (!is_placeholder || out.empty() || out.back() != id) out.push_back(id);
    }
    return out;
  }

 private:
  static constexpr int kPageTokens = 16;

  std::optional<Json> read_json(const char* name) const {
    std::ifstream file(directory_ / name);
    if (!file) return std::nullopt;
    return Json::parse(file);
  }

  void compare_pixels(const std::vector<MediaItem>& items, const WeightTable& reference, Result& out) const {
    const WeightEntry* pixels = reference.find("input.pixel_values");
    const WeightEntry* grid = reference.find("input.image_grid_thw");
    if (pixels == nullptr) pixels = reference.find("input.pixel_values_videos");
    if (grid == nullptr) grid = reference.find("input.video_grid_thw");
    ASSERT_EQ(grid == nullptr, items.empty());
    std::vector<float> all;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const MediaPlan& p = items[i].plan;
      const std::int64_t* expected = grid->view.row_as<std::int64_t>(static_cast<std::int64_t>(i));
      EXPECT_EQ(p.grid_t, expected[0]);
      EXPECT_EQ(p.grid_h, expected[1]);
      EXPECT_EQ(p.grid_w, expected[2]);
      all.insert(all.end(), items[i].pixels.f32(), items[i].pixels.f32() + items[i].pixels.view().numel());
    }
    if (pixels == nullptr) return;
    out.n_pixels = pixels->view.numel();
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), pixels->view.numel());
    for (std::size_t i = 0; i < all.size(); ++i)
      out.pixels = std::max(out.pixels, std::fabs(static_cast<double>(all[i] - pixels->view.cf32()[i])));
    EXPECT_LE(out.pixels, 1e-6);
  }

  template <typename Check>
  void greedy(const PromptLayout& layout, const std::vector<float>& prompt_logits, const Json& one,
              const WeightTable& reference, const Check& check, Result& out) {
    const auto expected = one.at("generated_ids").get<std::vector<std::int32_t>>();
    const TensorView step_logits = reference.at("step_logits").view;
    const auto vocab = static_cast<std::size_t>(model_->info().vocab_size);
    std::vector<float> logits(prompt_logits.end() - static_cast<std::ptrdiff_t>(vocab), prompt_logits.end());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      check(fmt::format("step {}", i), logits, step_logits.row(static_cast<std::int64_t>(i)));
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(best, expected[i]) << one.at("name") << " step " << i << " margin "
                                   << one.at("margins").at(i);
      out.n_greedy_equal += best == expected[i] ? 1 : 0;
      if (i + 1 < expected.size())
        logits = forward_next(expected[i], layout.next_position + static_cast<std::int32_t>(i));
    }
  }

  std::vector<float> step(std::span<const std::int32_t> ids, std::span<const std::int32_t> positions,
                          const std::vector<EmbeddingOverride>& overrides, ExecObserver* observer) {
    std::vector<std::int32_t> slots, rows;
    std::vector<RowLengths> lengths;
    const auto n_total = n_cached_ + static_cast<std::int32_t>(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<std::size_t>(n_cached_) + i;
      slots.push_back(pages_[at / kPageTokens] * kPageTokens + static_cast<std::int32_t>(at % kPageTokens));
      rows.push_back(static_cast<std::int32_t>(i));
      lengths.push_back({.n_tokens = static_cast<std::int32_t>(at) + 1, .n_prompt = n_total});
    }
    n_cached_ = n_total;
    const KvSequence sequence{.first_row = 0,
                              .n_rows = static_cast<std::int32_t>(ids.size()),
                              .n_context = n_cached_,
                              .pages = pages_};
    arena_.reset();
    ExecContext cx(*backend_, arena_, observer);
    const TensorView logits = model_->forward(cx, {.token_ids = ids,
                                                   .positions = positions,
                                                   .lengths = lengths,
                                                   .sequences = {&sequence, 1},
                                                   .kv_slots = slots,
                                                   .kv_cache = cache_.get(),
                                                   .media = overrides,
                                                   .logit_rows = rows});
    const TensorView read = cx.download(logits);
    return {read.cf32(), read.cf32() + read.numel()};
  }

  std::filesystem::path directory_;
  Json config_;
  std::optional<Json> preprocessor_, video_preprocessor_, processor_;
  WeightTable table_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TableWeights> weights_;
  std::unique_ptr<Model> model_;
  Arena arena_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::int32_t> pages_;
  std::int32_t n_cached_ = 0;
};

/// Runs every case of `golden` and prints a line of each. There must be `least_cases`, and values of the
/// processor (pixel_values) only where `with_pixels`. `video_options` are the limits that the reference made
/// videos with.
inline void run_cases(GoldenModel& model, const std::filesystem::path& golden, int least_cases,
                      bool with_pixels, const MediaOptions& video_options = {}) {
  int n = 0;
  std::int64_t n_pixels = 0;
  for (const Json& one : model.cases(golden)) {
    const GoldenModel::Result r =
        model.run(golden, one, 1e-4, one.value("video", false) ? video_options : MediaOptions{});
    fmt::print("  {:<12} {:3} tokens {:2} taps, worst {:.1e} ({}), pixels {:.1e}, {} of {} tokens equal\n",
               one.at("name").get<std::string>(), one.at("input_ids").size(), r.n_taps, r.worst, r.worst_name,
               r.pixels, r.n_greedy_equal, one.at("generated_ids").size());
    n_pixels += r.n_pixels;
    ++n;
  }
  EXPECT_GE(n, least_cases);
  EXPECT_EQ(n_pixels > 0, with_pixels);
}

/// The case of that name; null when there is none.
inline Json case_named(const GoldenModel& model, const std::filesystem::path& golden, std::string_view name) {
  for (const Json& one : model.cases(golden))
    if (one.at("name") == name) return one;
  return {};
}

/// What the error says when the model of `directory`, changed so, is bound; "loaded" when there is none.
inline std::string why_refused(const std::filesystem::path& directory, const GoldenModel::Change& change) {
  try {
    GoldenModel model(directory, change);
  } catch (const Error& error) {
    return error.what();
  }
  return "loaded";
}

}  // namespace triptych::test
