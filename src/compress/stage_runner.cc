#include "compress/stage_runner.h"

#include <set>

#include "base/error.h"

namespace triptych::compress {

namespace {

// As every family of published checkpoints names them, "x.weight" and "x.bias"; "": there is none.
std::vector<std::string> biases_of(const std::vector<std::string>& matrices, const Checkpoint& source) {
  constexpr std::string_view kEnding = "weight";
  std::vector<std::string> out;
  for (const std::string& matrix : matrices) {
    std::string bias;
    if (matrix.ends_with(kEnding)) bias = matrix.substr(0, matrix.size() - kEnding.size()) + "bias";
    out.push_back(source.weights().find(bias) != nullptr ? bias : std::string());
  }
  return out;
}

}  // namespace

StageRunner::StageRunner(std::filesystem::path from, const CompressOptions& options)
    : from_(std::move(from)),
      options_(options),
      source_(Checkpoint::open(from_, CheckpointOptions{.links = options.load.links})),
      pool_(options.load.n_threads),
      original_(open(nullptr)),
      steps_(options.recipe.passes),
      passes_(make_passes(options.recipe)) {
  if (original_->is_packed())
    fail(ErrorCode::kInvalidArgument, "{}: it is converted already; compress the original checkpoint",
         from_.string());
  const auto tell = [&](std::int64_t n_done, std::int64_t n) {
    if (options_.progress)
      options_.progress({.activity = "reading the data", .what = {}, .n_done = n_done, .n = n});
  };
  data_ = read_calibration(*original_, options_.data, options_.recipe.calibration, tell);
  look_at_inputs();
}

void StageRunner::look_at_inputs() {
  float_moments_ = std::make_unique<MomentRecorder>(original_->model().part_sizes(), pool_,
                                                    [](const LinearId&) { return false; });
  const auto tell = [&](std::int64_t n_done, std::int64_t n) {
    if (options_.progress)
      options_.progress({.activity = "looking at inputs", .what = {}, .n_done = n_done, .n = n});
  };
  run_calibration(*original_, data_, *float_moments_, tell);
  float_moments_->finish();
}

std::unique_ptr<LoadedModel> StageRunner::open(std::shared_ptr<const WeightReplacements> replaced) const {
  LoadOptions load = options_.load;
  load.progress = {};
  load.replaced_weights = std::move(replaced);
  return LoadedModel::open(from_, load);
}

StageRunner::Plan StageRunner::plan() const {
  Plan out;
  for (const PartSizes::Linear& linear : original_->model().part_sizes().linears) {
    const auto own = options_.formats_of.find(linear.id.text());
    const auto format = own != options_.formats_of.end()
                            ? std::optional(own->second)
                            : options_.recipe.formats({linear.id, linear.traits, linear.part,
                                                       linear.weight->n_out(), linear.weight->n_in()});
    if (!format || !linear.id.part.empty()) {
      out.kept.push_back(linear.id.text());
      continue;
    }
    // A head that is the embedding too is rounded when it is written, since the embedding must stay.
    if (linear.is_embedding) {
      out.tied_head = format;
      out.kept.push_back(linear.id.text());
      continue;
    }
    PlannedLinear one{.id = linear.id,
                      .part = linear.part,
                      .format = *format,
                      .matrices = linear.matrices,
                      .n_rows = linear.n_rows,
                      .biases = biases_of(linear.matrices, source_),
                      .n_in = linear.weight->n_in()};
    // Layers of a tower behind the last one that is read: nothing depends on them.
    (float_moments_->channels(linear.id) == nullptr ? out.unreached : out.linears).push_back(std::move(one));
  }
  return out;
}

std::vector<std::span<const PlannedLinear>> StageRunner::stages_of(const std::vector<PlannedLinear>& linears,
                                                                   bool block_by_block) const {
  std::vector<std::span<const PlannedLinear>> out;
  std::size_t begin = 0, bytes = 0;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const std::size_t more = static_cast<std::size_t>(linears[i].n_in * linears[i].n_in) * sizeof(float);
    const bool is_new_block =
        block_by_block && i > begin &&
        float_moments_->block_of(linears[i].id) != float_moments_->block_of(linears[begin].id);
    if (i > begin && (is_new_block || bytes + more > options_.max_gram_bytes)) {
      out.emplace_back(linears.data() + begin, i - begin);
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  if (begin < linears.size()) out.emplace_back(linears.data() + begin, linears.size() - begin);
  return out;
}

void StageRunner::run(std::span<const PlannedLinear> stage, WeightEdits& weights, CompressReport& report,
                      bool with_corrections) {
  std::set<LinearId> wanted;
  std::map<LinearId, PairedMoments> pairs;
  for (const PlannedLinear& linear : stage) {
    wanted.insert(linear.id);
    for (const auto& pass : passes_)
      if (with_corrections && pass->wants_pairs(linear)) pairs.emplace(linear.id, linear.n_in);
  }
  const auto model = open(weights.replacements());
  MomentRecorder moments(model->model().part_sizes(), pool_,
                         [wanted](const LinearId& id) { return wanted.contains(id); });
  if (pairs.empty())
    run_calibration(*model, data_, moments);
  else
    run_calibration(*original_, *model, data_, moments, pairs);
  moments.finish();
  const auto& groups = original_->model().part_sizes().equalization_groups;
  StageWork work{.linears = stage,
                 .groups = groups,
                 .moments = moments,
                 .float_moments = *float_moments_,
                 .pairs = pairs,
                 .weights = weights,
                 .pool = pool_,
                 .report = report};
  for (std::size_t i = 0; i < passes_.size(); ++i)
    if (with_corrections || !find_pass(steps_[i].name)->follows_rounding) passes_[i]->run(work);
}

}  // namespace triptych::compress
