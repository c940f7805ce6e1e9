// What models speak to. ExecContext checks shapes once for all backends, takes outputs from the arena,
// records taps (named as in the reference implementation) and lets an observer see the input of each linear.
// It holds no weights and no state of a sequence.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "backend/op_args.h"

namespace triptych {

/// Sees intermediate values while a model runs. Called on the thread that runs the step, values valid during
/// the call only.
class ExecObserver {
 public:
  virtual ~ExecObserver() = default;
  /// False for an observer of linears only: models then skip what exists for taps alone.
  virtual bool wants_taps() const noexcept { return true; }
  /// `name` as the reference names the module whose output this is.
  virtual void on_tap(std::string_view name, const TensorView& value) = 0;
  /// Input x [T, K] of a linear, before the product. Default: nothing.
  virtual void on_linear(const LinearWeight& weight, const TensorView& x);
  /// An attention over plain tensors, before it runs. Default: nothing.
  virtual void on_attention(const AttentionArgs& args);
  /// The same over a cache, q [T, H, Dh].
  virtual void on_paged_attention(const KvCache& cache, std::span<const KvSequence> sequences,
                                  const TensorView& q);
  /// Around the backend's work on an operation, for measurements; `operation` is a literal ("linear"). What
  /// is said of the operation above comes before. Default: nothing.
  virtual void on_begin(const char* operation);
  virtual void on_end();
};

class ExecContext {
 public:
  /// Borrows all three. `observer` may be null.
  ExecContext(Backend& backend, Arena& arena, ExecObserver* observer = nullptr)
      : backend_(backend), arena_(arena), observer_(observer) {}

  Backend& backend() noexcept { return backend_; }
  Arena& arena() noexcept { return arena_; }
  /// True when someone listens: models then also run parts whose result nothing else needs.
  bool tapping() const noexcept { return observer_ != nullptr && observer_->wants_taps(); }

  /// Computes on this processor what operations read (angles of positions), in its place among them: now, or,
  /// when the step is recorded, each time the plan runs. `computation` holds copies of views and spans of the
  /// arena and of the step's inputs, and must not keep anything else that ends with the step.
  template <typename Computation>
  void host(Computation computation) {
    if (backend_.is_recording()) return backend_.record_host(std::move(computation));
    computation();
  }

  /// New float32 tensor in the arena, not initialised.
  TensorView empty(const Shape& shape) { return arena_.make(DType::kF32, shape); }

  // Operations; each returns its output from the arena unless it says "in place". Shape errors throw
  // Error(kInternal) that names the operation and both shapes.

  /// y [T, N] = activation(x W^T + b) + residual.
  TensorView linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue = {});
  /// The same into y, which may be the residual.
  void linear_into(const LinearWeight& w, const LinearInput& x, TensorView y,
                   const LinearEpilogue& epilogue = {});
  /// activation(x W^T + b) for `consumer`, its only reader: codes where the backend writes them, else float32
  /// rows.
  LinearInput linear_for(const LinearWeight& consumer, const LinearWeight& w, const LinearInput& x,
                         Activation activation);
  TensorView embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids);
  /// y [Tq, H * Dh].
  TensorView attention(const AttentionArgs& args);
  void kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                 std::span<const std::int32_t> slots);
  /// q [T, H, Dh] -> y [T, H * Dh].
  TensorView paged_attention(const KvCache& cache, int layer, std::span<const KvSequence> sequences,
                             float scale, const TensorView& q);
  TensorView layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps);
  TensorView rms_norm(const TensorView& x, const TensorView& weight, float eps);
  /// In place: x may be a strided [T, H, Dh] view.
  void layer_norm_inplace(TensorView x, const TensorView& weight, const TensorView& bias, float eps);
  void rope(TensorView x, const TensorView& cos, const TensorView& sin);
  void activation(Activation kind, TensorView x);  // in place
  TensorView gated_activation(Activation kind, const TensorView& gate_up);
  /// gated_activation(kind, linear(gate_up, x)): x [T, K] -> [T, N / 2].
  TensorView gated_linear(Activation kind, const LinearWeight& gate_up, const LinearInput& x);
  /// The same for `consumer`, as linear_for.
  LinearInput gated_linear_for(const LinearWeight& consumer, Activation kind, const LinearWeight& gate_up,
                               const LinearInput& x);
  TensorView add(const TensorView& a, const TensorView& b);
  void add_inplace(TensorView a, const TensorView& b);  // a += b
  void scale_rows(TensorView x, std::span<const float> factors);
  TensorView gather_rows(const TensorView& src, std::span<const std::int32_t> rows);
  void scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView dst);
  /// Pixels behind the last whole patch are not read, as a convolution without padding does (SigLIP: 384 in
  /// patches of 14).
  TensorView patchify(const TensorView& picture, int patch_size_px);
  /// Elements of `from` into `to`; strides may differ.
  void copy(const TensorView& from, TensorView to);

  /// Shows a value under a formatted name; costs one branch when nobody listens.
  template <typename... Args>
  void tap(const TensorView& value, fmt::format_string<Args...> name, Args&&... args) {
    if (tapping()) observer_->on_tap(fmt::format(name, std::forward<Args>(args)...), value);
  }

 private:
  // x as the backend takes it: normed here where it does not norm rows, or where someone wants to see them.
  LinearInput input_for(const LinearWeight& w, const LinearInput& x);
  void check_input(const char* op, const LinearWeight& w, const LinearInput& x) const;
  bool hands_int8_to(const LinearWeight& consumer) const;
  // Not initialised; sets what the epilogue says of them.
  LinearInput empty_int8(const LinearWeight& consumer, std::int64_t n_rows, LinearEpilogue& epilogue);

  Backend& backend_;
  Arena& arena_;
  ExecObserver* observer_;
};

}  // namespace triptych
