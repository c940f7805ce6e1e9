// How long each part of a model takes (its matrices by their published names, attention, norms ...) and what
// it costs at least, seen from a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/exec_context.h"
#include "base/profile.h"
#include "models/model.h"
#include "report/part_timing.h"

namespace triptych {

/// "language_model.model.layers.3.mlp.gate_proj+up_proj" to "mlp.gate_proj+up_proj": what follows the number
/// of the layer, or the last two words of a name without one.
std::string part_name(std::string_view published_name);

/// Times every operation while it observes, and opens a profile zone of the part's name around it.
class PartRecorder : public ExecObserver {
 public:
  PartRecorder(const PartSizes& sizes, const Backend& backend);

  /// Later passes decode. Before it: towers, projectors and prefill, told apart by their weights.
  void begin_decode() noexcept { decoding_ = true; }
  /// Means over the passes; in the order of first use, stage by stage.
  std::vector<PartTiming> parts(int n_prompts, int n_decoded) const;

  bool wants_taps() const noexcept override { return false; }
  bool reads_values() const noexcept override { return false; }
  void on_tap(std::string_view, const TensorView&) override {}
  void on_linear(const LinearWeight& weight, const TensorView& x) override;
  void on_attention(const AttentionArgs& args) override;
  void on_paged_attention(const KvCache& cache, std::span<const KvSequence> sequences,
                          const CacheAttention& how, const TensorView& q) override;
  void on_begin(const char* operation) override;
  void on_end() override;

 private:
  struct Sum {
    std::string stage, name;
    std::int64_t count = 0, ns = 0;
    Cost cost;
  };
  std::string_view stage() const noexcept;
  Sum& sum_of(std::string_view stage, std::string_view name);

  const Backend& backend_;
  std::unordered_map<const LinearWeight*, std::pair<std::string, const char*>> linears_;  // part, name
  std::vector<Sum> sums_;
  bool decoding_ = false;
  std::string_view part_ = "vision";  // of the operation that runs
  const char* name_ = nullptr;        // what on_linear or on_attention said of it
  Cost cost_;                         // likewise
  std::optional<ProfileZone> zone_;
  Sum* open_ = nullptr;
  std::int64_t start_ns_ = 0;
};

}  // namespace triptych
