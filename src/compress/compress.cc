#include "compress/compress.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "compress/equalize.h"
#include "compress/gptq.h"
#include "compress/moments.h"
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
        pool_(options.load.n_threads) {}

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
    std::string block;
    std::size_t gram_bytes = 0;
    for (const PartSizes::Linear& linear : model->model().part_sizes().linears) {
      const auto format = format_of(linear);
      if (!format) {
        report_.kept.push_back(linear.id.text());
        continue;
      }
      Planned planned{linear.id, linear.part, *format, linear.matrices, linear.n_rows, linear.weight->n_in()};
      // Layers of a tower behind the last one that is read: nothing depends on them.
      if (recorder.channels(linear.id) == nullptr) {
        unreached_.push_back(std::move(planned));
        continue;
      }
      const auto bytes = static_cast<std::size_t>(planned.n_in * planned.n_in) * sizeof(float);
      const std::string& in = recorder.block_of(linear.id);
      if (stages_.empty() || in != block || gram_bytes + bytes > options_.max_gram_bytes) {
        stages_.emplace_back();
        gram_bytes = 0;
      }
      block = in;
      gram_bytes += bytes;
      stages_.back().push_back(std::move(planned));
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
    const auto own = options_.formats_of.find(linear.id.text());
    std::optional<QuantFormat> format;
    if (own != options_.formats_of.end())
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

  void run_stage(const std::vector<Planned>& stage) {
    std::set<LinearId> wanted;
    for (const Planned& linear : stage) wanted.insert(linear.id);
    const auto model = open();
    MomentRecorder recorder(model->model().part_sizes(), pool_,
                            [&](const LinearId& id) { return wanted.contains(id); });
    run_calibration(*model, data_, recorder);
    recorder.finish();
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
      GptqReport rounded{};
      auto codes = std::make_shared<QuantizedMatrix>(
          options_.gptq && !linear.format.two_level
              ? gptq(w, h, linear.format, {.damping = options_.damping, .clip_to = options_.clip_to}, pool_,
                     &rounded)
              : quantize(w, linear.format, {.clip_to = options_.clip_to}));
      out.error += output_error(w, dequantize(*codes).view(), h, pool_);
      out.damping = std::max(out.damping, rounded.damping);
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
