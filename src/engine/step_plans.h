// Recorded steps by class: the first step of a class is recorded through the model and run, later ones run
// the record (StepPlan of backend/backend.h). A record names addresses: outputs in the arena, inputs in the
// engine's vectors. It is used only while those are the same.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>

#include "backend/exec_context.h"
#include "base/function_ref.h"
#include "tensor/arena.h"

namespace triptych {

/// What steps must share to be the same operations on the same addresses.
struct StepClass {
  StepShape shape;
  std::int64_t n_logit_rows = 0;
  std::uint64_t skipped_layers = 0;  // which layers it leaves out, as a hash; 0: none
  /// The cache, and where the inputs begin that are read anew in each step.
  std::array<const void*, 7> addresses{};

  friend bool operator==(const StepClass& a, const StepClass& b) noexcept {
    return a.shape.n_rows == b.shape.n_rows && a.shape.n_sequences == b.shape.n_sequences &&
           a.n_logit_rows == b.n_logit_rows && a.skipped_layers == b.skipped_layers &&
           a.addresses == b.addresses;
  }
};

class StepPlans {
 public:
  /// Records that are kept; the one used longest ago goes first.
  static constexpr std::size_t kCapacity = 16;

  /// Borrows both. The arena is the steps' own: run() resets it.
  StepPlans(Backend& backend, Arena& arena) : backend_(backend), arena_(arena) {}

  /// The output of a step. `forward` is called when there is no record of its class: it asks for operations
  /// in a context without observer, and must not look at their results. Where the backend does not record, it
  /// computes them. Throws what operations throw; records stay usable then.
  TensorView run(const StepClass& step, FunctionRef<TensorView(ExecContext&)> forward);

  std::int64_t n_recorded() const noexcept { return n_recorded_; }
  /// Steps that called no model.
  std::int64_t n_replayed() const noexcept { return n_replayed_; }
  std::size_t size() const noexcept { return records_.size(); }

 private:
  struct Record {
    StepClass step;
    std::unique_ptr<StepPlan> plan;
    TensorView output;
    Arena::Extent extent;  // that it takes of the arena
  };
  void reset_arena();
  bool record(const StepClass& step, FunctionRef<TensorView(ExecContext&)> forward);

  Backend& backend_;
  Arena& arena_;
  std::int64_t generation_ = 0;  // of the arena, that the records were made in
  std::list<Record> records_;    // used last first
  std::int64_t n_recorded_ = 0;
  std::int64_t n_replayed_ = 0;
};

}  // namespace triptych
