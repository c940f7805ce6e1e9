// Moving scale between channels, group by group (compress/equalize.h).
#include <vector>

#include "compress/equalize.h"
#include "compress/pass.h"

namespace triptych::compress {
namespace {

class EqualizePass final : public Pass {
 public:
  void run(StageWork& stage) override {
    for (const EqualizationGroup& group : stage.groups) equalize(stage, group);
  }

 private:
  // Groups all of whose readers are worked on now, and whose writers are not finished.
  static void equalize(StageWork& stage, const EqualizationGroup& group) {
    std::vector<Tensor> values;
    std::vector<const PlannedLinear*> linears;
    for (const std::string& name : group.readers) {
      const PlannedLinear* linear = stage.linear_with(name);
      if (linear == nullptr) return;
      linears.push_back(linear);
      values.push_back(stage.weights.value_of(name));
    }
    for (const EqualizationGroup::Writer& writer : group.writers)
      if (stage.weights.codes_of(writer.name) != nullptr) return;
    std::vector<TensorView> views;
    for (const Tensor& value : values) views.push_back(value.view());
    std::vector<Reader> readers;
    for (std::size_t i = 0; i < views.size(); ++i)
      readers.push_back({.matrix = &views[i],
                         .format = linears[i]->format,
                         .inputs = stage.moments.channels(linears[i]->id)});
    const Equalization found = find_equalization(group, readers);
    stage.report.equalizations.push_back(
        {.reader = group.readers.front(),
         .activation_power = found.activation_power,
         .weight_power = found.weight_power,
         .gain = found.error_before > 0 ? found.error_after / found.error_before : 1.0});
    if (found.activation_power == 0 && found.weight_power == 0) return;
    apply_equalization(
        group, found.scales, [&](const std::string& name) { return stage.weights.value_of(name); },
        [&](const std::string& name, Tensor value) { stage.weights.set(name, std::move(value)); });
    std::set<LinearId> done;
    for (const PlannedLinear* linear : linears) {
      if (!done.insert(linear->id).second) continue;
      std::vector<float> by(static_cast<std::size_t>(linear->n_in));
      for (std::int64_t k = 0; k < linear->n_in; ++k)
        by[static_cast<std::size_t>(k)] = found.scales[static_cast<std::size_t>(group.channel_of(k))];
      stage.divide_inputs(linear->id, by);
    }
  }
};

}  // namespace

PassInfo equalize_pass() {
  return {
      .name = "equalize",
      .reads = "mean squares and largest values of input channels",
      .changes = "norms and matrices that write channels, matrices that read them",
      .reports = "exponents and estimated error left, a group",
      .parameters = {},
      .make = [](const PassSettings&) -> std::unique_ptr<Pass> { return std::make_unique<EqualizePass>(); }};
}

}  // namespace triptych::compress
