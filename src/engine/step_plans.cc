#include "engine/step_plans.h"

#include <algorithm>
#include <utility>

namespace triptych {
namespace {

// Ends a recording also when the model throws.
class RecordingScope {
 public:
  explicit RecordingScope(Backend& backend) : backend_(backend), records_(backend.begin_recording()) {}
  ~RecordingScope() {
    if (records_) backend_.end_recording();
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  bool records() const noexcept { return records_; }
  std::unique_ptr<StepPlan> finish() {
    records_ = false;
    return backend_.end_recording();
  }

 private:
  Backend& backend_;
  bool records_;
};

}  // namespace

// Memory that moved takes all records with it.
void StepPlans::reset_arena() {
  arena_.reset();
  if (arena_.generation() == generation_) return;
  records_.clear();
  generation_ = arena_.generation();
}

// Puts a record in front. False: the backend does not record.
bool StepPlans::record(const StepClass& step, FunctionRef<TensorView(ExecContext&)> forward) {
  // A step that needed several chunks moves into one when the arena is reset; then it is recorded again.
  for (int attempt = 0; attempt < 2; ++attempt) {
    RecordingScope scope(backend_);
    if (!scope.records()) return false;
    ExecContext cx(backend_, arena_);
    Record made{step, nullptr, forward(cx), {}};
    made.plan = scope.finish();
    if (made.plan == nullptr) return false;
    made.extent = arena_.high();
    const std::int64_t before = generation_;
    reset_arena();
    if (generation_ != before) continue;
    while (records_.size() >= kCapacity) records_.pop_back();
    records_.push_front(std::move(made));
    ++n_recorded_;
    return true;
  }
  return false;
}

TensorView StepPlans::run(const StepClass& step, FunctionRef<TensorView(ExecContext&)> forward) {
  reset_arena();
  const auto found =
      std::find_if(records_.begin(), records_.end(), [&](const Record& r) { return r.step == step; });
  if (found != records_.end()) {
    records_.splice(records_.begin(), records_, found);
    ++n_replayed_;
  } else if (!record(step, forward)) {
    ExecContext cx(backend_, arena_);
    return forward(cx);
  }
  const Record& one = records_.front();
  arena_.take(one.extent);  // the same memory, taken at once
  one.plan->run();
  return one.output;
}

}  // namespace triptych
