#include "compress/calibration_data.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "engine/engine.h"
#include "evaluation/eval.h"
#include "io/mapped_file.h"
#include "media/image_decode.h"
#include "media/picture_names.h"

namespace triptych::compress {
namespace {

namespace fs = std::filesystem;

struct Item {
  fs::path picture;
  std::string question, answer;  // no answer: the model gives it
};

std::vector<Item> list_items(const fs::path& folder) {
  std::vector<Item> out;
  std::error_code error;
  if (fs::exists(folder / "questions.jsonl", error)) {
    for (EvalQuestion& q : read_questions(folder))
      out.push_back({folder / q.image, std::move(q.question), std::move(q.answer)});
    return out;
  }
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (has_picture_ending(it->path().filename().string()))
      out.push_back({it->path(), "Describe the image.", ""});
  if (error) fail(ErrorCode::kIo, "--data {}: {}", folder.string(), error.message());
  if (out.empty())
    fail(ErrorCode::kInvalidArgument,
         "--data {}: expected questions.jsonl or pictures (png, jpeg, webp, bmp, gif, tiff, ppm), found "
         "neither",
         folder.string());
  std::sort(out.begin(), out.end(), [](const Item& a, const Item& b) { return a.picture < b.picture; });
  return out;
}

PreparedRequest prepare(const LoadedModel& model, const Item& item) {
  const DecodeLimits limits;
  MediaInput picture;
  picture.frames.push_back(decode_image(MappedFile::open(item.picture, limits.max_file_bytes)->bytes(),
                                        limits, item.picture.string()));
  picture.name = item.picture.filename().string();
  ChatRequest request;
  ChatMessage message;
  message.role = "user";
  message.parts = {{ContentPart::Kind::kImage, ""}, {ContentPart::Kind::kText, item.question}};
  request.messages.push_back(std::move(message));
  request.media.push_back(std::move(picture));
  return model.prepare(request);
}

// An engine with room for the longest sample.
std::unique_ptr<Engine> engine_for(LoadedModel& model, std::int64_t n_tokens) {
  EngineOptions options;
  options.max_context_tokens = std::min(n_tokens, model.info().max_context_tokens);
  options.max_sequences = 1;
  options.kv_cache_dtype = KvDType::kF32;
  return std::make_unique<Engine>(model, options);
}

}  // namespace

CalibrationData read_calibration(LoadedModel& model, const fs::path& folder,
                                 const CalibrationOptions& options,
                                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::vector<Item> items = list_items(folder);
  const auto n = std::min(options.n_samples, static_cast<std::int64_t>(items.size()));
  CalibrationData out;
  std::string seen;
  for (std::int64_t i = 0; i < n; ++i) {
    if (progress) progress(i, n);
    const Item& item = items[static_cast<std::size_t>(i * static_cast<std::int64_t>(items.size()) / n)];
    CalibrationSample sample{.request = prepare(model, item), .row_weights = {}};
    std::vector<std::int32_t> answer;
    if (item.answer.empty()) {
      SamplingParams greedy;
      greedy.max_tokens = options.max_answer_tokens;
      const auto n_prompt = static_cast<std::int64_t>(sample.request.layout.input_ids.size());
      answer = engine_for(model, n_prompt + greedy.max_tokens + 1)
                   ->generate(prepare(model, item), greedy)
                   .token_ids;
    } else {
      answer = model.tokenizer().encode(item.answer, {.add_special_tokens = false});
    }
    sample.n_answer_tokens = static_cast<std::int64_t>(answer.size());
    append_tokens(sample.request.layout, answer, model.info().n_position_axes);
    sample.row_weights.assign(sample.request.layout.input_ids.size(), 1.0F);
    std::int64_t n_image = 0;
    for (const MediaRun& run : sample.request.layout.runs) {
      n_image += run.n_rows;
      std::fill_n(sample.row_weights.begin() + run.first_prompt_row, run.n_rows, options.image_row_weight);
    }
    out.n_image_tokens += n_image;
    out.n_text_tokens += static_cast<std::int64_t>(sample.row_weights.size()) - n_image;
    const auto bytes = MappedFile::open(item.picture, DecodeLimits().max_file_bytes);
    seen += digest_hex(bytes->bytes()) + '\n' + item.question + '\n' + item.answer + '\n';
    out.samples.push_back(std::move(sample));
  }
  out.fingerprint = digest_hex(std::as_bytes(std::span(seen)));
  return out;
}

std::int64_t count_conversations(const fs::path& data) {
  return static_cast<std::int64_t>(list_items(data).size());
}

std::size_t n_shared_pictures(const fs::path& a, const fs::path& b) {
  const auto digests = [](const fs::path& folder) {
    std::set<fs::path> files;
    for (const Item& item : list_items(folder)) files.insert(item.picture);
    std::set<std::string> out;
    for (const fs::path& file : files)
      out.insert(digest_hex(MappedFile::open(file, DecodeLimits().max_file_bytes)->bytes()));
    return out;
  };
  const std::set<std::string> first = digests(a), second = digests(b);
  return static_cast<std::size_t>(std::count_if(
      second.begin(), second.end(), [&](const std::string& digest) { return first.contains(digest); }));
}

namespace {

std::unique_ptr<Engine> engine_for_all(LoadedModel& model, const CalibrationData& data) {
  std::size_t longest = 1;
  for (const CalibrationSample& sample : data.samples) longest = std::max(longest, sample.row_weights.size());
  return engine_for(model, static_cast<std::int64_t>(longest) + 1);
}

}  // namespace

void run_calibration(LoadedModel& model, const CalibrationData& data, MomentRecorder& recorder,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const auto engine = engine_for_all(model, data);
  for (const CalibrationSample& sample : data.samples) {
    if (progress) progress(&sample - data.samples.data(), static_cast<std::int64_t>(data.samples.size()));
    recorder.set_row_weights(sample.row_weights);
    engine->forward_prompt(sample.request, &recorder);
  }
}

namespace {

// Inputs of some linears in one run, [T, K] each, one call after another.
class InputKeeper final : public ExecObserver {
 public:
  InputKeeper(const PartSizes& sizes, const std::map<LinearId, PairedMoments>& wanted) {
    for (const PartSizes::Linear& linear : sizes.linears)
      if (wanted.contains(linear.id)) known_.emplace(linear.weight, linear.id);
  }
  bool wants_taps() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  void on_linear(const LinearWeight& weight, const TensorView& x) override {
    if (next_ != nullptr) next_->on_linear(weight, x);
    if (const auto found = known_.find(&weight); found != known_.end() && x.dim(0) > 0)
      kept_[found->second].push_back(Tensor::copy_of(x));
  }
  void on_block_begin(const BlockName& block, const TensorView& h) override {
    if (next_ != nullptr) next_->on_block_begin(block, h);
  }
  void on_block_end(const BlockName& block, const TensorView& h) override {
    if (next_ != nullptr) next_->on_block_end(block, h);
  }
  void tell_too(ExecObserver* next) { next_ = next; }
  std::map<LinearId, std::vector<Tensor>> take() { return std::exchange(kept_, {}); }

 private:
  std::unordered_map<const LinearWeight*, LinearId> known_;
  std::map<LinearId, std::vector<Tensor>> kept_;
  ExecObserver* next_ = nullptr;
};

}  // namespace

void run_calibration(LoadedModel& original, LoadedModel& model, const CalibrationData& data,
                     MomentRecorder& recorder, std::map<LinearId, PairedMoments>& pairs) {
  const auto first = engine_for_all(original, data), second = engine_for_all(model, data);
  InputKeeper before(original.model().part_sizes(), pairs), after(model.model().part_sizes(), pairs);
  after.tell_too(&recorder);
  constexpr std::size_t kPeriod = 10;
  const std::size_t period = std::min(kPeriod, data.samples.size());
  for (std::size_t i = 0; i < data.samples.size(); ++i) {
    const CalibrationSample& sample = data.samples[i];
    recorder.set_row_weights(sample.row_weights);
    first->forward_prompt(sample.request, &before);
    second->forward_prompt(sample.request, &after);
    const auto x = before.take(), y = after.take();
    for (auto& [id, sums] : pairs) {
      const auto a = x.find(id), b = y.find(id);
      if (a == x.end() || b == y.end()) continue;
      for (std::size_t call = 0; call < std::min(a->second.size(), b->second.size()); ++call)
        sums.add(a->second[call].view(), b->second[call].view(), period > 1 && i % period == period - 1);
    }
  }
}

std::vector<float> answer_logits(LoadedModel& model, const CalibrationData& data, std::size_t n_samples) {
  const auto engine = engine_for_all(model, data);
  std::vector<float> out;
  for (std::size_t i = 0; i < std::min(n_samples, data.samples.size()); ++i) {
    const CalibrationSample& sample = data.samples[i];
    const TensorView logits = engine->forward_prompt(sample.request, nullptr);
    for (std::int64_t t = logits.dim(0) - 1 - sample.n_answer_tokens; t < logits.dim(0) - 1; ++t)
      out.insert(out.end(), logits.row(t).cf32(), logits.row(t).cf32() + logits.dim(1));
  }
  return out;
}

}  // namespace triptych::compress
