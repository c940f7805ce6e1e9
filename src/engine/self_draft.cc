#include "engine/self_draft.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"

namespace triptych {
namespace {

constexpr double kRowCost = 0.03;  // of a step, for each drafted row, and once what follows
constexpr double kFirstRowCost = 0.05;
constexpr double kLeastSpeedup = 1.02;

// The whole model's answer, and an engine in whose cache its prompt is.
struct Sample {
  std::unique_ptr<Engine> engine;
  std::vector<std::int32_t> answer;
};

PreparedRequest copy_of(const PreparedRequest& request) {
  PreparedRequest out;
  out.prompt = request.prompt;
  out.token_ids = request.token_ids;
  out.layout = request.layout;
  for (const MediaItem& item : request.media)
    out.media.push_back({item.plan, Tensor::copy_of(item.pixels), item.text_ids, item.fingerprint});
  return out;
}

PreparedRequest question_about(const LoadedModel& model, const MediaInput& picture) {
  ChatRequest request;
  ChatMessage message;
  message.role = "user";
  message.parts.push_back({.kind = ContentPart::Kind::kImage, .text = {}});
  message.parts.push_back({.kind = ContentPart::Kind::kText, .text = "Describe the image."});
  request.messages.push_back(std::move(message));
  request.media.push_back(picture);
  return model.prepare(request);
}

// The language model's bytes in the head, which every draft reads, over all.
double head_share(const LoadedModel& model) {
  double head = 0;
  double all = 0;
  for (const PartSizes::Linear& linear : model.model().part_sizes().linears) {
    if (linear.part != "language") continue;
    const auto bytes = static_cast<double>(linear.weight->read_bytes());
    all += bytes;
    if (linear.traits.role == LinearRole::kHead) head += bytes;
  }
  return all > 0 ? head / all : 0;
}

class Search {
 public:
  Search(LoadedModel& model, const SelfDraftSearch& how,
         const std::function<void(std::int64_t, std::int64_t)>& progress)
      : model_(model), how_(how), progress_(progress), n_layers_(model.info().n_layers) {
    const auto n = static_cast<std::int64_t>(n_layers_);
    n_passes_ = n * n;  // each round looks again at few of the layers that are left
  }

  void add_sample(const MediaInput& picture) {
    const PreparedRequest request = question_about(model_, picture);
    EngineOptions options;
    options.max_context_tokens =
        std::min(static_cast<std::int64_t>(request.layout.input_ids.size()) + how_.n_answer_tokens + 1,
                 model_.info().max_context_tokens);
    options.kv_cache_tokens = options.max_context_tokens;
    options.max_sequences = 1;
    options.vision_embedding_cache_bytes = std::size_t{64} << 20;
    Sample sample{std::make_unique<Engine>(model_, options), {}};
    SamplingParams greedy;
    greedy.max_tokens = how_.n_answer_tokens;
    sample.answer = sample.engine->generate(copy_of(request), greedy).token_ids;
    if (sample.answer.size() < 2) return;
    sample.engine->forward_prompt(request, nullptr);
    samples_.push_back(std::move(sample));
  }

  SelfDraft run() {
    SelfDraft best;
    if (samples_.empty() || n_layers_ < 3) return best;
    const double head = head_share(model_);
    double best_speedup = kLeastSpeedup;
    std::vector<std::int32_t> skipped;
    // What was agreed without each of the layers that stay, when it was last looked at. Leaving out more
    // hardly makes it better, so that one which was worse before need not be looked at again.
    std::vector<std::pair<double, std::int32_t>> left;
    for (std::int32_t layer = 1; layer + 1 < n_layers_; ++layer) left.emplace_back(2.0, layer);
    while (!left.empty()) {
      const double agreed = leave_one_out(skipped, left);
      const double cost =
          head + (1 - head) * static_cast<double>(n_layers_ - static_cast<int>(skipped.size())) / n_layers_;
      const double speedup = expected_speedup(agreed, cost, how_.max_tokens);
      if (speedup > best_speedup) {
        best_speedup = speedup;
        best.skipped_layers = skipped;
        best.acceptance = agreed;
      }
      // With this many right, the cheapest draft that could still be made gains nothing.
      if (expected_speedup(agreed, head, how_.max_tokens) < best_speedup) break;
    }
    std::sort(best.skipped_layers.begin(), best.skipped_layers.end());
    return best;
  }

 private:
  // Adds the best of `left` to `skipped`; what is agreed without it.
  double leave_one_out(std::vector<std::int32_t>& skipped,
                       std::vector<std::pair<double, std::int32_t>>& left) {
    std::vector<bool> looked_at(static_cast<std::size_t>(n_layers_));
    for (;;) {
      const auto top = std::max_element(left.begin(), left.end(), [](const auto& a, const auto& b) {
        return a.first < b.first || (a.first == b.first && a.second < b.second);
      });
      if (looked_at[static_cast<std::size_t>(top->second)]) {
        const double agreed = top->first;
        skipped.push_back(top->second);
        left.erase(top);
        return agreed;
      }
      looked_at[static_cast<std::size_t>(top->second)] = true;
      std::vector<std::int32_t> layers = skipped;
      layers.push_back(top->second);
      std::sort(layers.begin(), layers.end());
      top->first = agreement(layers);
    }
  }

  // The share of the answers' tokens that are the likeliest without these layers. Keys and values of the
  // prompt are the whole model's, those of the answer the draft's own: a little less is agreed than when
  // drafting.
  double agreement(std::span<const std::int32_t> layers) {
    if (progress_) progress_(std::min(n_done_++, n_passes_ - 1), n_passes_);
    std::int64_t n_same = 0;
    std::int64_t n_all = 0;
    const auto n_usable = static_cast<std::ptrdiff_t>(model_.n_usable_ids());
    for (const Sample& sample : samples_) {
      const std::span<const std::int32_t> given(sample.answer.data(), sample.answer.size() - 1);
      const TensorView logits = sample.engine->forward_draft(given, layers);
      for (std::size_t t = 0; t < given.size(); ++t) {
        const float* row = logits.row(static_cast<std::int64_t>(t)).cf32();
        n_same += std::max_element(row, row + n_usable) - row == sample.answer[t + 1] ? 1 : 0;
        ++n_all;
      }
    }
    return static_cast<double>(n_same) / static_cast<double>(n_all);
  }

  LoadedModel& model_;
  const SelfDraftSearch& how_;
  const std::function<void(std::int64_t, std::int64_t)>& progress_;
  int n_layers_;
  std::int64_t n_passes_ = 0;
  std::int64_t n_done_ = 0;
  std::vector<Sample> samples_;
};

}  // namespace

void check_skipped_layers(std::string_view field, std::span<const std::int32_t> layers, int n_layers) {
  std::vector<bool> seen(static_cast<std::size_t>(n_layers));
  for (const std::int32_t layer : layers) {
    if (layer < 0 || layer >= n_layers)
      fail(ErrorCode::kInvalidArgument, "{}: expected layers in [0, {}), got {}", field, n_layers, layer);
    if (seen[static_cast<std::size_t>(layer)])
      fail(ErrorCode::kInvalidArgument, "{}: layer {} is named twice", field, layer);
    seen[static_cast<std::size_t>(layer)] = true;
  }
  if (layers.empty() || layers.size() >= seen.size())
    fail(ErrorCode::kInvalidArgument, "{}: expected 1 to {} of {} layers, got {}", field, n_layers - 1,
         n_layers, layers.size());
}

SelfDraft read_self_draft(const JsonView& config, int n_layers) {
  SelfDraft out;
  if (const auto stored = config.find("self_draft")) {
    const JsonView layers = stored->at("skipped_layers");
    for (const JsonView& layer : layers.items())
      out.skipped_layers.push_back(static_cast<std::int32_t>(layer.as_int(0, n_layers - 1)));
    out.acceptance = stored->get_double("acceptance", 0);
    if (out.skipped_layers.empty()) return out;
    try {
      check_skipped_layers(layers.path(), out.skipped_layers, n_layers);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidFile, error.what());
    }
    std::sort(out.skipped_layers.begin(), out.skipped_layers.end());
    return out;
  }
  const auto text = config.find("text_config");
  for (const JsonView* view : {&config, text ? &*text : nullptr}) {
    const double rate = view == nullptr ? 0 : view->get_double("layerdrop", 0);
    if (!(rate > 0)) continue;
    if (rate >= 1)
      fail(ErrorCode::kInvalidFile, "{}.layerdrop: expected a number in [0, 1), got {}", view->path(), rate);
    // A rate so small that no layer is reached must not leave the range of integers either.
    const double most = std::min(std::floor(1 / rate), static_cast<double>(n_layers));
    const auto stride = std::max<std::int64_t>(2, static_cast<std::int64_t>(most));
    for (std::int64_t layer = stride; layer + 1 < n_layers; layer += stride)
      out.skipped_layers.push_back(static_cast<std::int32_t>(layer));
    if (!out.skipped_layers.empty()) break;
  }
  return out;
}

Json to_json(const SelfDraft& draft) {
  return {{"skipped_layers", draft.skipped_layers}, {"acceptance", draft.acceptance}};
}

double expected_speedup(double acceptance, double draft_cost, int max_tokens) {
  double best = 1;
  double tokens = 1;
  for (int k = 1; k <= max_tokens; ++k) {
    tokens += std::pow(acceptance, k);
    best = std::max(best, tokens / (k * draft_cost + 1 + kFirstRowCost + kRowCost * k));
  }
  return best;
}

SelfDraft find_self_draft(LoadedModel& model, const std::vector<MediaInput>& pictures,
                          const SelfDraftSearch& search,
                          const std::function<void(std::int64_t n_done, std::int64_t n_passes)>& progress) {
  if (pictures.empty()) fail(ErrorCode::kInvalidArgument, "self-draft: there is no picture");
  Search run(model, search, progress);
  for (const MediaInput& picture : pictures) run.add_sample(picture);
  return run.run();
}

}  // namespace triptych
