#include "compress/compress.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "compress/budget.h"
#include "compress/equalize.h"
#include "compress/gptq.h"
#include "compress/moments.h"
#include "evaluation/eval.h"
#include "io/checkpoint.h"
#include "tensor/convert.h"
#include "tensor/quant_codec.h"
#include "weights/weight_providers.h"

namespace triptych::compress {
namespace {

namespace fs = std::filesystem;

// One linear of the plan.
struct Planned {
  LinearId id;
  std::string part;
  QuantFormat format;
  std::vector<std::string> matrices;
  std::vector<std::int64_t> n_rows;
  std::int64_t n_in = 0;
};

class Compression {
 public:
  Compression(fs::path from, const CompressOptions& options)
      : from_(std::move(from)),
        options_(options),
        source_(Checkpoint::open(from_, CheckpointOptions{.links = options.load.links})),
        pool_(options.load.n_threads),
        formats_of_(options.formats_of) {}

  CompressReport run(const fs::path& to) {
    const auto start = std::chrono::steady_clock::now();
    make_plan();
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      tell(stages_[i].front().id.text(), static_cast<std::int64_t>(i) + 1);
      run_stage(stages_[i]);
    }
    for (const Planned& linear : unreached_) round_to_nearest(linear);
    tell("writing", static_cast<std::int64_t>(stages_.size()) + 1);
    ConvertOptions convert{.load = options_.load, .replace = options_.replace};
    convert.load.replaced_weights = std::make_shared<const WeightReplacements>(replaced_);
    convert.load.weight_formats.lm_head = tied_head_;
    convert.stated_formats = options_.formats;
    report_.written = convert_checkpoint(from_, to, convert);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  void tell(const std::string& what, std::int64_t n_done) const {
    if (options_.progress) options_.progress(what, n_done, static_cast<std::int64_t>(stages_.size()) + 2);
  }

  std::unique_ptr<LoadedModel> open() const {
    LoadOptions load = options_.load;
    load.progress = {};
    load.replaced_weights = std::make_shared<const WeightReplacements>(replaced_);
    return LoadedModel::open(from_, load);
  }

  // Which linears become what, and in which order. The first run over the data tells in which block each is.
  void make_plan() {
    tell("reading the data", 0);
    const auto model = open();
    if (model->is_packed())
      fail(ErrorCode::kInvalidArgument, "{}: it is converted already; compress the original checkpoint",
           from_.string());
    data_ = read_calibration(*model, options_.data, options_.calibration);
    report_.n_samples = static_cast<std::int64_t>(data_.samples.size());
    report_.n_image_tokens = data_.n_image_tokens;
    report_.n_text_tokens = data_.n_text_tokens;
    report_.data_fingerprint = data_.fingerprint;
    groups_ = model->model().part_sizes().equalization_groups;
    MomentRecorder recorder(model->model().part_sizes(), pool_, [](const LinearId&) { return false; });
    run_first_sample(*model, recorder);
    if (options_.bits > 0) choose_formats(*model, recorder);
    std::string block;
    std::size_t stage_bytes = 0;
    for (const PartSizes::Linear& linear : model->model().part_sizes().linears) {
      const auto format = format_of(linear);
      if (!format) {
        report_.kept.push_back(linear.id.text());
        continue;
      }
      Planned one = planned(linear, *format);
      // Layers of a tower behind the last one that is read: nothing depends on them.
      if (recorder.channels(linear.id) == nullptr) {
        unreached_.push_back(std::move(one));
        continue;
      }
      const std::size_t bytes = gram_bytes(one);
      const std::string& in = recorder.block_of(linear.id);
      if (stages_.empty() || in != block || stage_bytes + bytes > options_.max_gram_bytes) {
        stages_.emplace_back();
        stage_bytes = 0;
      }
      block = in;
      stage_bytes += bytes;
      stages_.back().push_back(std::move(one));
    }
    if (stages_.empty()) fail(ErrorCode::kInvalidArgument, "no linear of the model is to be quantized");
  }

  void run_first_sample(LoadedModel& model, MomentRecorder& recorder) {
    CalibrationData one;
    one.samples.push_back(std::move(data_.samples.front()));
    run_calibration(model, one, recorder);
    data_.samples.front() = std::move(one.samples.front());
    recorder.finish();
  }

  // Nothing: the linear stays as it is. A head that is the embedding too is rounded when it is written, since
  // the embedding must stay.
  std::optional<QuantFormat> format_of(const PartSizes::Linear& linear) {
    const auto own = formats_of_.find(linear.id.text());
    std::optional<QuantFormat> format;
    if (own != formats_of_.end())
      format = own->second;
    else
      format = options_.formats(
          {linear.id, linear.traits, linear.part, linear.weight->n_out(), linear.weight->n_in()});
    if (!format || !linear.id.part.empty()) return std::nullopt;
    if (linear.is_embedding) {
      tied_head_ = format;
      return std::nullopt;
    }
    return format;
  }

  // Each linear alone in each format, as it would be written, against the original's answers; then the best
  // within the budget. Linears that no sample reaches take the smallest format and no part in it.
  void choose_formats(LoadedModel& original, const MomentRecorder& first) {
    const std::size_t n_samples = options_.n_sensitivity_samples;
    const std::vector<float> expected = answer_logits(original, data_, n_samples);
    const auto vocab = static_cast<std::size_t>(original.info().vocab_size);
    const auto smaller = [](const QuantFormat& x, const QuantFormat& y) {
      return x.bits_per_weight(4096) < y.bits_per_weight(4096);
    };
    const QuantFormat smallest = *std::min_element(options_.choices.begin(), options_.choices.end(), smaller);
    std::vector<Planned> linears;
    double n_weights = 0;
    for (const PartSizes::Linear& linear : original.model().part_sizes().linears) {
      if (!format_of(linear)) continue;
      formats_of_[linear.id.text()] = smallest;
      if (first.channels(linear.id) == nullptr) continue;
      linears.push_back(planned(linear, smallest));
      n_weights += static_cast<double>(linear.weight->n_out() * linear.weight->n_in());
    }
    std::vector<std::vector<Choice>> choices(linears.size());
    for (std::size_t begin = 0, end; begin < linears.size(); begin = end) {
      std::size_t bytes = 0;
      for (end = begin; end < linears.size(); ++end) {
        bytes += gram_bytes(linears[end]);
        if (bytes > options_.max_gram_bytes && end > begin) break;
      }
      measure({linears.data() + begin, end - begin}, expected, vocab, {choices.data() + begin, end - begin});
    }
    const std::vector<std::size_t> chosen = choose_within(choices, options_.bits / 8 * n_weights);
    for (std::size_t i = 0; i < linears.size(); ++i)
      formats_of_[linears[i].id.text()] = options_.choices[chosen[i]];
  }

  // The choices of some linears, with their channels equalized. Nothing stays of that.
  void measure(std::span<const Planned> linears, const std::vector<float>& expected, std::size_t vocab,
               std::span<std::vector<Choice>> out) {
    const std::vector<Planned> stage(linears.begin(), linears.end());
    MomentRecorder recorder = moments_of(stage);
    const std::size_t n_reported = report_.equalizations.size();
    if (options_.equalize)
      for (const EqualizationGroup& group : groups_) equalize(stage, group, recorder);
    report_.equalizations.resize(n_reported);
    for (std::size_t i = 0; i < stage.size(); ++i) {
      tell("sensitivity of " + stage[i].id.text(), 0);
      Planned one = stage[i];
      double n = 0;
      for (const std::int64_t rows : one.n_rows) n += static_cast<double>(rows * one.n_in);
      for (const QuantFormat& format : options_.choices) {
        one.format = format;
        for (std::size_t m = 0; m < one.matrices.size(); ++m)
          replaced_.matrices[one.matrices[m]] = rounded(one, m, *recorder.gram(one.id));
        const std::vector<float> got = answer_logits(*open(), data_, options_.n_sensitivity_samples);
        for (const std::string& name : one.matrices) replaced_.matrices.erase(name);
        double divergence = 0;
        for (std::size_t row = 0; row + vocab <= expected.size(); row += vocab)
          divergence += kl_divergence({expected.data() + row, vocab}, {got.data() + row, vocab});
        divergence /= static_cast<double>(std::max<std::size_t>(expected.size() / vocab, 1));
        out[i].push_back({format.bits_per_weight(one.n_in) / 8 * n, divergence});
        report_.sensitivities.push_back({one.id.text(), format.to_string(), divergence});
      }
    }
    replaced_ = {};
  }

  static Planned planned(const PartSizes::Linear& linear, const QuantFormat& format) {
    return {linear.id, linear.part, format, linear.matrices, linear.n_rows, linear.weight->n_in()};
  }
  static std::size_t gram_bytes(const Planned& linear) {
    return static_cast<std::size_t>(linear.n_in * linear.n_in) * sizeof(float);
  }

  // A tensor as it is so far, by its published name, in float32.
  Tensor value_of(const std::string& name) const {
    if (const auto found = replaced_.tensors.find(name); found != replaced_.tensors.end())
      return to_f32(found->second->view());
    const WeightEntry* entry = source_.weights().find(name);
    if (entry == nullptr)
      fail(ErrorCode::kUnsupported, "tensor {} is not in {}: it cannot be compressed from two checkpoints",
           name, from_.string());
    Tensor out = to_f32(entry->view);
    release(*entry);
    return out;
  }

  // Of the inputs of these linears, with all that is replaced so far.
  MomentRecorder moments_of(const std::vector<Planned>& stage) {
    std::set<LinearId> wanted;
    for (const Planned& linear : stage) wanted.insert(linear.id);
    const auto model = open();
    MomentRecorder recorder(model->model().part_sizes(), pool_,
                            [wanted](const LinearId& id) { return wanted.contains(id); });
    run_calibration(*model, data_, recorder);
    recorder.finish();
    return recorder;
  }

  void run_stage(const std::vector<Planned>& stage) {
    MomentRecorder recorder = moments_of(stage);
    if (options_.equalize)
      for (const EqualizationGroup& group : groups_) equalize(stage, group, recorder);
    for (const Planned& linear : stage) round(linear, recorder);
  }

  static const Planned* reader_of(const std::vector<Planned>& stage, const std::string& matrix) {
    for (const Planned& linear : stage)
      if (std::find(linear.matrices.begin(), linear.matrices.end(), matrix) != linear.matrices.end())
        return &linear;
    return nullptr;
  }

  // Groups all of whose readers are worked on now, and whose writers are not finished.
  void equalize(const std::vector<Planned>& stage, const EqualizationGroup& group, MomentRecorder& recorder) {
    std::vector<Tensor> values;
    std::vector<TensorView> views;
    std::vector<const Planned*> linears;
    for (const std::string& name : group.readers) {
      const Planned* linear = reader_of(stage, name);
      if (linear == nullptr) return;
      linears.push_back(linear);
      values.push_back(value_of(name));
    }
    for (const EqualizationGroup::Writer& writer : group.writers)
      if (replaced_.matrices.contains(writer.name)) return;
    for (const Tensor& value : values) views.push_back(value.view());
    std::vector<Reader> readers;
    for (std::size_t i = 0; i < views.size(); ++i)
      readers.push_back(
          {.matrix = &views[i], .format = linears[i]->format, .inputs = recorder.channels(linears[i]->id)});
    const Equalization found = find_equalization(group, readers);
    report_.equalizations.push_back(
        {.reader = group.readers.front(),
         .activation_power = found.activation_power,
         .weight_power = found.weight_power,
         .gain = found.error_before > 0 ? found.error_after / found.error_before : 1.0});
    if (found.activation_power == 0 && found.weight_power == 0) return;
    apply_equalization(
        group, found.scales, [this](const std::string& name) { return value_of(name); }, replaced_);
    std::set<LinearId> done;
    for (const Planned* linear : linears) {
      if (!done.insert(linear->id).second) continue;
      std::vector<float> by(static_cast<std::size_t>(linear->n_in));
      for (std::int64_t k = 0; k < linear->n_in; ++k)
        by[static_cast<std::size_t>(k)] = found.scales[static_cast<std::size_t>(group.channel_of(k))];
      recorder.gram(linear->id)->divide_channels(by);
    }
  }

  // Matrix i of a linear in its format.
  std::shared_ptr<const QuantizedMatrix> rounded(const Planned& linear, std::size_t i, const Gram& h,
                                                 GptqReport* report = nullptr) {
    const Tensor stored = value_of(linear.matrices[i]);
    const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
    if (!options_.gptq || linear.format.two_level)
      return std::make_shared<QuantizedMatrix>(quantize(w, linear.format, {.clip_to = options_.clip_to}));
    return std::make_shared<QuantizedMatrix>(
        gptq(w, h, linear.format, {.damping = options_.damping, .clip_to = options_.clip_to}, pool_, report));
  }

  void round(const Planned& linear, MomentRecorder& recorder) {
    const Gram& h = *recorder.gram(linear.id);
    LinearReport out{.name = linear.id.text(),
                     .part = linear.part,
                     .format = linear.format.to_string(),
                     .bits_per_weight = linear.format.bits_per_weight(linear.n_in)};
    double energy = 0;
    for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
      const std::string& name = linear.matrices[i];
      const Tensor stored = value_of(name);
      const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
      const Tensor nothing = Tensor::zeros(DType::kF32, w.shape());
      energy += output_error(w, nothing.view(), h, pool_);
      const Tensor nearest = dequantize(quantize(w, linear.format));
      out.error_nearest += output_error(w, nearest.view(), h, pool_);
      GptqReport report{};
      auto codes = rounded(linear, i, h, &report);
      out.error += output_error(w, dequantize(*codes).view(), h, pool_);
      out.damping = std::max(out.damping, report.damping);
      out.n_weights += w.numel();
      replaced_.tensors.erase(name);
      replaced_.matrices[name] = std::move(codes);
    }
    if (energy > 0) {
      out.error /= energy;
      out.error_nearest /= energy;
    }
    report_.linears.push_back(std::move(out));
  }

  void round_to_nearest(const Planned& linear) {
    for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
      const Tensor stored = value_of(linear.matrices[i]);
      const TensorView w = stored.view().reshape({linear.n_rows[i], linear.n_in});
      replaced_.matrices[linear.matrices[i]] = std::make_shared<QuantizedMatrix>(quantize(w, linear.format));
    }
    report_.unreached.push_back(linear.id.text());
  }

  fs::path from_;
  const CompressOptions& options_;
  Checkpoint source_;
  ThreadPool pool_;
  std::map<std::string, QuantFormat> formats_of_;
  CalibrationData data_;
  std::vector<EqualizationGroup> groups_;
  std::vector<std::vector<Planned>> stages_;
  std::vector<Planned> unreached_;
  std::optional<QuantFormat> tied_head_;
  WeightReplacements replaced_;
  CompressReport report_;
};

}  // namespace

double CompressReport::bits_per_weight() const {
  double bits = 0, n = 0;
  for (const LinearReport& linear : linears) {
    bits += linear.bits_per_weight * static_cast<double>(linear.n_weights);
    n += static_cast<double>(linear.n_weights);
  }
  return n > 0 ? bits / n : 0;
}

CompressReport compress_checkpoint(const fs::path& from, const fs::path& to, const CompressOptions& options) {
  return Compression(from, options).run(to);
}

}  // namespace triptych::compress
