#include "evaluation/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "evaluation/tap_recorder.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"

namespace triptych {
namespace {

std::string quoted(std::string_view text, std::size_t around) {
  const std::size_t begin = around > 12 ? around - 12 : 0;
  return Json(text.substr(std::min(begin, text.size()), 32))
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string first_difference(std::string_view ours, std::string_view golden) {
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), golden.begin(), golden.end());
  const auto at = static_cast<std::size_t>(a - ours.begin());
  if (a == ours.end() && b == golden.end()) return {};
  return fmt::format("differs at byte {}: {} against {}", at, quoted(ours, at), quoted(golden, at));
}

std::string without(std::string_view text, std::string_view placeholder) {
  std::string out(text);
  if (placeholder.empty()) return out;
  for (std::size_t at = out.find(placeholder); at != std::string::npos; at = out.find(placeholder, at))
    out.erase(at, placeholder.size());
  return out;
}

template <typename Ours, typename Golden>
std::string compare_ids(std::string_view name, const Ours& ours, const Golden& golden) {
  for (std::size_t i = 0; i < ours.size() && i < golden.size(); ++i)
    if (static_cast<std::int64_t>(ours[i]) != static_cast<std::int64_t>(golden[i]))
      return fmt::format("{}[{}] is {}, the reference has {}; ", name, i, ours[i], golden[i]);
  if (ours.size() != golden.size())
    return fmt::format("{} has {} values, the reference {}; ", name, ours.size(), golden.size());
  return {};
}

std::vector<std::int64_t> integers_of(const TensorView& view) {
  const auto* values = view.as<std::int64_t>();
  return {values, values + view.numel()};
}

// One user message: the parts in order; pictures of a video case are frames of one video where the first
// stands.
ChatRequest make_request(const GoldenSet& golden, const GoldenCase& one) {
  ChatRequest out;
  ChatMessage message;
  message.role = "user";
  for (const GoldenPart& part : one.parts) {
    if (!part.is_picture) {
      message.parts.push_back({ContentPart::Kind::kText, part.value});
      continue;
    }
    const auto file = MappedFile::open(golden.directory / part.value);
    Image image = decode_image(file->bytes(), {}, part.value);
    if (one.is_video && !out.media.empty()) {
      out.media.back().frames.push_back(std::move(image));
      continue;
    }
    message.parts.push_back({one.is_video ? ContentPart::Kind::kVideo : ContentPart::Kind::kImage, ""});
    MediaInput& input = out.media.emplace_back();
    input.frames.push_back(std::move(image));
    input.is_video = one.is_video;
    input.frames_per_s = one.frames_per_s;
    input.name = part.value;
  }
  out.messages.push_back(std::move(message));
  return out;
}

// Ids at places that rows of a picture replace mean nothing; a reference may keep other ones there.
template <typename Golden>
std::string compare_prompt_ids(const PromptLayout& layout, const Golden& golden) {
  std::vector<std::int64_t> expected(golden.begin(), golden.end());
  for (const MediaRun& run : layout.runs)
    for (std::int64_t row = run.first_prompt_row; row < run.first_prompt_row + run.n_rows; ++row)
      if (static_cast<std::size_t>(row) < expected.size())
        expected[static_cast<std::size_t>(row)] = layout.input_ids[static_cast<std::size_t>(row)];
  return compare_ids("input_ids", layout.input_ids, expected);
}

void compare_inputs(const GoldenCase& golden, const PreparedRequest& ours, CaseReport& report) {
  if (!golden.input_ids.empty()) report.ids_problem += compare_prompt_ids(ours.layout, golden.input_ids);
  for (const GoldenTensor& input : golden.inputs) {
    const TensorView& view = input.view;
    if (input.name == "input_ids") {
      report.ids_problem += compare_prompt_ids(ours.layout, integers_of(view));
    } else if (input.name.ends_with("_grid_thw")) {
      std::vector<std::int64_t> grids;
      for (const MediaItem& item : ours.media)
        grids.insert(grids.end(), {item.plan.grid_t, item.plan.grid_h, item.plan.grid_w});
      report.ids_problem += compare_ids(input.name, grids, integers_of(view));
    } else if (input.name == "image_sizes") {
      std::vector<std::int64_t> sizes;
      for (const MediaItem& item : ours.media)
        sizes.insert(sizes.end(), {item.plan.meta.height_px, item.plan.meta.width_px});
      report.ids_problem += compare_ids(input.name, sizes, integers_of(view));
    } else if (input.name == "qformer_input_ids") {  // ids of the text that goes with the first picture
      static const std::vector<std::int32_t> kNone;
      report.ids_problem += compare_ids(input.name, ours.media.empty() ? kNone : ours.media.front().text_ids,
                                        integers_of(view));
    } else if (view.dtype() == DType::kF32 && view.rank() >= 2) {
      report.inputs.push_back({input.name, compare_pixels(ours.media, view)});
    } else {
      report.not_compared.push_back(input.name);
    }
  }
  if (report.ids_problem.ends_with("; ")) report.ids_problem.resize(report.ids_problem.size() - 2);
}

// Puts the reference's pixels in the place of ours; shapes were compared.
void adopt_pixels(std::vector<MediaItem>& items, const TensorView& reference) {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const TensorView ours = items[i].pixels.view();
    if (ours.rank() + 1 == reference.rank()) {
      copy(reference.row(static_cast<std::int64_t>(i)).rows(0, ours.dim(0)), ours);
    } else {
      copy(reference.rows(row, row + ours.dim(0)), ours);
      row += ours.dim(0);
    }
  }
}

void adopt_pixels_within_grey_level(const LoadedModel& model, const GoldenCase& golden, double tolerance,
                                    PreparedRequest& request, CaseReport& report) {
  const double limit = 1.001 * grey_level(model);
  bool any = false;
  for (const NamedDifference& input : report.inputs) {
    if (!input.difference.problem.empty()) return;
    if (input.difference.within(tolerance)) continue;
    any = true;
    if (input.difference.max_abs > limit) return;
  }
  if (!any) return;
  report.within_grey_level = true;
  for (const GoldenTensor& reference : golden.inputs)
    if (reference.view.dtype() == DType::kF32 && reference.view.rank() >= 2)
      adopt_pixels(request.media, reference.view);
}

void compare_taps(const GoldenCase& golden, TapRecorder& recorder, double tolerance, CaseReport& report) {
  for (TapRecorder::Tap& tap : recorder.taps())
    for (const GoldenTensor& reference : golden.taps) {
      if (reference.name != tap.name) continue;
      report.taps.push_back({tap.name, compare_tensors(tap.view(), reference.view)});
      if (!report.taps.back().difference.within(tolerance) && report.first_diverging_tap.empty())
        report.first_diverging_tap = tap.name;
    }
  for (const GoldenTensor& reference : golden.taps)
    if (recorder.find(reference.name) == nullptr) report.missing_taps.push_back(reference.name);
}

// Logits of every step when the reference's own tokens are fed: [n, V], row 0 the last row of the prompt's.
Tensor run_steps(Engine& engine, const TensorView& prompt_logits, const GoldenCase& golden) {
  std::int64_t n_steps = static_cast<std::int64_t>(golden.generated_ids.size());
  if (golden.step_logits)  // may hold one row more: what follows the last token
    n_steps = std::clamp<std::int64_t>(golden.step_logits->dim(0), n_steps, n_steps + 1);
  const std::int64_t vocab_size = prompt_logits.dim(1);
  Tensor out(DType::kF32, {n_steps, vocab_size});
  if (n_steps == 0) return out;
  copy(prompt_logits.rows(prompt_logits.dim(0) - 1, prompt_logits.dim(0)), out.view().rows(0, 1));
  for (std::int64_t i = 1; i < n_steps; ++i)
    copy(engine.forward_next(golden.generated_ids[static_cast<std::size_t>(i - 1)], nullptr),
         out.view().rows(i, i + 1));
  return out;
}

// How far the chosen token's logit is above all others.
double margin_of(const TensorView& logits, std::int32_t chosen) {
  double second = -INFINITY;
  for (std::int64_t i = 0; i < logits.numel(); ++i)
    if (i != chosen) second = std::max(second, static_cast<double>(logits.cf32()[i]));
  return static_cast<double>(logits.cf32()[chosen]) - second;
}

bool ends_with_stop(const GoldenCase& golden, const LoadedModel& model) {
  const auto& stops = model.stop_token_ids();
  return !golden.generated_ids.empty() &&
         std::find(stops.begin(), stops.end(), golden.generated_ids.back()) != stops.end();
}

// The whole answer through the ordinary path: sampler, stop tokens, streaming decoder.
std::string compare_answer(Engine& engine, PreparedRequest request, const GoldenCase& golden) {
  SamplingParams greedy;
  greedy.max_tokens = static_cast<std::int64_t>(golden.generated_ids.size());
  const GenerationResult result = engine.generate(std::move(request), greedy);
  if (result.finish_reason != FinishReason::kStop)
    return fmt::format("did not reach the stop token in {} tokens", greedy.max_tokens);
  const std::vector<std::int32_t> expected(golden.generated_ids.begin(), golden.generated_ids.end() - 1);
  const std::string ids = compare_ids("answer", result.token_ids, expected);
  if (!ids.empty()) return ids.substr(0, ids.size() - 2);
  return golden.text ? first_difference(result.text, *golden.text) : std::string();
}

bool all_within(const std::vector<NamedDifference>& list, double tolerance) {
  return std::all_of(list.begin(), list.end(),
                     [&](const NamedDifference& d) { return d.difference.within(tolerance); });
}

// A reference's processor may have been given other limits than the directory's. Where one item's recorded
// grid differs from ours, its area in pixels tells them.
std::optional<std::int64_t> recorded_area(const GoldenCase& golden, const PreparedRequest& ours) {
  if (ours.media.size() != 1) return std::nullopt;
  const MediaPlan& plan = ours.media.front().plan;
  for (const GoldenTensor& input : golden.inputs) {
    if (!input.name.ends_with("_grid_thw") || plan.grid_h < 1 || plan.grid_w < 1) continue;
    const std::vector<std::int64_t> grid = integers_of(input.view);
    if (grid.size() != 3 || (grid[1] == plan.grid_h && grid[2] == plan.grid_w)) return std::nullopt;
    const std::int64_t patch_px = plan.resized_height_px / plan.grid_h;
    if (grid[1] < 1 || grid[2] < 1 || grid[1] > 4096 || grid[2] > 4096) return std::nullopt;
    return grid[1] * grid[2] * patch_px * patch_px;
  }
  return std::nullopt;
}

void run_case(LoadedModel& model, const GoldenSet& set, const GoldenCase& golden,
              const VerifyOptions& options, CaseReport& report) {
  for (const std::int32_t id : golden.generated_ids)
    if (id >= model.info().vocab_size)
      fail(ErrorCode::kInvalidFile,
           "golden.json: {}: generated_ids: {} is outside the model's vocabulary of {}", golden.name, id,
           model.info().vocab_size);
  ChatRequest chat = make_request(set, golden);
  chat.media_options = options.media;
  if (golden.media_options.min_pixels > 0) chat.media_options.min_pixels = golden.media_options.min_pixels;
  if (golden.media_options.max_pixels > 0) chat.media_options.max_pixels = golden.media_options.max_pixels;
  PreparedRequest request = model.prepare(chat);
  if (const auto area = recorded_area(golden, request)) {
    chat.media_options.min_pixels = *area;
    chat.media_options.max_pixels = *area;
    request = model.prepare(chat);
    report.limits_from_grid = true;
  }
  report.n_tokens = static_cast<std::int64_t>(request.layout.input_ids.size());
  report.n_media = static_cast<std::int64_t>(request.media.size());
  if (golden.prompt) report.prompt_problem = compare_prompts(request.prompt, *golden.prompt, model.info());
  compare_inputs(golden, request, report);
  adopt_pixels_within_grey_level(model, golden, options.pixel_tolerance, request, report);

  Engine engine(model, {.max_context_tokens = 0,
                        .kv_cache_tokens = 0,
                        .max_batch_tokens = 1024,
                        .max_sequences = 1,
                        .kv_cache_dtype = options.kv_cache_dtype});
  TapRecorder recorder;
  const Tensor logits =
      Tensor::copy_of(engine.forward_prompt(request, golden.taps.empty() ? nullptr : &recorder));
  compare_taps(golden, recorder, options.tolerance, report);
  if (golden.logits) report.logits = compare_tensors(logits, *golden.logits);
  const Tensor steps = run_steps(engine, logits, golden);
  if (golden.step_logits) report.step_logits = compare_tensors(steps, *golden.step_logits);
  report.greedy = compare_greedy(steps, golden, options.errors_a_margin);
  if (ends_with_stop(golden, model)) {
    Engine fresh(model, {.max_context_tokens = 0,
                         .kv_cache_tokens = 0,
                         .max_batch_tokens = 1024,
                         .max_sequences = 1,
                         .kv_cache_dtype = options.kv_cache_dtype});
    report.answer_problem = compare_answer(fresh, model.prepare(chat), golden);
    if (report.greedy.first_different >= 0 && report.greedy.passed) report.answer_problem.clear();  // excused
  }
  const auto within = [&](const std::optional<Difference>& d) { return !d || d->within(options.tolerance); };
  report.passed = report.prompt_problem.empty() && report.ids_problem.empty() &&
                  report.missing_taps.empty() &&
                  (report.within_grey_level || all_within(report.inputs, options.pixel_tolerance)) &&
                  all_within(report.taps, options.tolerance) && within(report.logits) &&
                  within(report.step_logits) && report.greedy.passed && report.answer_problem.empty();
}

}  // namespace

double grey_level(const LoadedModel& model) {
  auto config = model.checkpoint().json_file("processor_config.json");
  if (config && config->contains("image_processor")) {
    config = Json((*config)["image_processor"]);
  } else {
    config = model.checkpoint().json_file("preprocessor_config.json");
    if (!config) return 0;
  }
  const JsonView view(*config, "image processor");
  double smallest_std = 1;
  if (const auto std = view.find("image_std"))
    for (const JsonView& one : std->is_array() ? std->items() : std::vector<JsonView>{*std})
      smallest_std = std::min(smallest_std, one.as_double());
  return smallest_std > 0 ? view.get_double("rescale_factor", 1.0 / 255) / smallest_std : 0;
}

Difference compare_pixels(const std::vector<MediaItem>& items, const TensorView& reference) {
  Difference out;
  const auto mismatch = [&](const MediaItem& item) {
    out.problem = fmt::format("{} items of shape {} ... against {}", items.size(),
                              to_string(item.pixels.shape()), to_string(reference.shape()));
    return out;
  };
  const auto n_items = static_cast<std::int64_t>(items.size());
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < n_items; ++i) {
    const TensorView ours = items[static_cast<std::size_t>(i)].pixels.view();
    if (ours.rank() + 1 == reference.rank() && reference.dim(0) == n_items && ours.rank() >= 1) {
      const TensorView slot = reference.row(i);
      if (ours.dim(0) > slot.dim(0)) return mismatch(items[static_cast<std::size_t>(i)]);
      const TensorView padding = slot.rows(ours.dim(0), slot.dim(0));
      out.merge(compare_tensors(ours, slot.rows(0, ours.dim(0))));
      out.merge(compare_tensors(Tensor::zeros(DType::kF32, padding.shape()), padding));
    } else if (ours.rank() == reference.rank() && row + ours.dim(0) <= reference.dim(0)) {
      out.merge(compare_tensors(ours, reference.rows(row, row + ours.dim(0))));
      row += ours.dim(0);
      if (i + 1 == n_items && row != reference.dim(0)) return mismatch(items[static_cast<std::size_t>(i)]);
    } else {
      return mismatch(items[static_cast<std::size_t>(i)]);
    }
  }
  if (n_items == 0) out.problem = "the prompt has no picture";
  return out;
}

const NamedDifference* worst(const std::vector<NamedDifference>& list) {
  const NamedDifference* out = nullptr;
  for (const NamedDifference& one : list)
    if (out == nullptr || !one.difference.problem.empty() ||
        (out->difference.problem.empty() && one.difference.relative() > out->difference.relative()))
      out = &one;
  return out;
}

GreedyReport compare_greedy(const TensorView& step_logits, const GoldenCase& golden, double errors_a_margin) {
  constexpr double kStoredDigits = 5e-5;  // margins are stored with four
  GreedyReport out;
  out.n_steps = static_cast<std::int64_t>(golden.generated_ids.size());
  for (std::int64_t i = 0; i < out.n_steps; ++i) {
    const float* row = step_logits.row(i).cf32();
    const auto best =
        std::max_element(row, row + step_logits.dim(1)) - row;  // the first of equals, as argmax
    const auto step = static_cast<std::size_t>(i);
    const bool equal = best == golden.generated_ids[step];
    double margin = step < golden.margins.size() ? golden.margins[step] : 0.0;
    double error = 0.0;
    if (golden.step_logits && i < golden.step_logits->dim(0) &&
        golden.step_logits->dim(1) == step_logits.dim(1)) {
      error = compare_tensors(step_logits.row(i), golden.step_logits->row(i)).max_abs;
      if (golden.margins.empty()) margin = margin_of(golden.step_logits->row(i), golden.generated_ids[step]);
    }
    out.n_equal += equal ? 1 : 0;
    if (margin > errors_a_margin * error + kStoredDigits) {
      ++out.n_decided;
      out.n_decided_equal += equal ? 1 : 0;
    }
    if (!equal && out.first_different < 0) {
      out.first_different = i;
      out.margin = margin;
      out.error = error;
    }
  }
  out.passed = out.n_decided_equal == out.n_decided;
  return out;
}

std::string compare_prompts(std::string_view ours, std::string_view golden, const ModelInfo& info) {
  if (ours == golden) return {};
  std::string bare(ours);
  for (const std::string* placeholder : {&info.image_placeholder, &info.video_placeholder})
    if (!placeholder->empty() && golden.find(*placeholder) == std::string_view::npos)
      bare = without(bare, *placeholder);
  return bare == golden ? std::string() : first_difference(ours, golden);
}

std::vector<CaseReport> verify_model(LoadedModel& model, const GoldenSet& golden,
                                     const VerifyOptions& options, CaseCallback on_case) {
  std::vector<CaseReport> out;
  for (const GoldenCase& one : golden.cases) {
    CaseReport report;
    report.name = one.name;
    try {
      run_case(model, golden, one, options, report);
    } catch (const Error& error) {
      report.error = error.what();
      report.passed = false;
    }
    out.push_back(std::move(report));
    on_case(out.back(), out.size() - 1, golden.cases.size());
  }
  return out;
}

std::vector<CaseReport> verify_model(LoadedModel& model, const GoldenSet& golden,
                                     const VerifyOptions& options) {
  return verify_model(model, golden, options, [](const CaseReport&, std::size_t, std::size_t) {});
}

}  // namespace triptych
