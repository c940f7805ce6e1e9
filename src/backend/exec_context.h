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

/// A block of a tower or decoder: "<module>.<list>.<index>", as the reference names it. Written out only when
/// someone asks.
struct BlockName {
  std::string_view module;  // "model.language_model"
  std::string_view list;    // "layers"
  int index = 0;

  std::string text() const { return fmt::format("{}.{}.{}", module, list, index); }
};

/// Sees intermediate values while a model runs. Called on the thread that runs the step, values valid during
/// the call only.
class ExecObserver {
 public:
  virtual ~ExecObserver() = default;
  /// False for an observer of linears only: models then skip what exists for taps alone.
  virtual bool wants_taps() const noexcept { return true; }
  /// `name` as the reference names the module whose output this is. `value` is in host memory.
  virtual void on_tap(std::string_view name, const TensorView& value) = 0;
  /// False for an observer that looks at shapes alone: what follows is not brought to host memory for it.
  virtual bool reads_values() const noexcept;
  /// Input x [T, K] of a linear, before the product, in host memory if the observer reads it. Default:
  /// nothing.
  virtual void on_linear(const LinearWeight& weight, const TensorView& x);
  /// An attention over plain tensors, before it runs; its operands are where the backend has them. Default:
  /// nothing.
  virtual void on_attention(const AttentionArgs& args);
  /// The same over a cache, q [T, H, Dh].
  virtual void on_paged_attention(const KvCache& cache, std::span<const KvSequence> sequences,
                                  const CacheAttention& how, const TensorView& q);
  /// Around the backend's work on an operation, for measurements; `operation` is a literal ("linear"). What
  /// is said of the operation above comes before. Default: nothing.
  virtual void on_begin(const char* operation);
  virtual void on_end();
  /// Around a block, h [T, D] as it comes in and as it leaves, like on_linear's x. Default: nothing.
  virtual void on_block_begin(const BlockName& block, const TensorView& h);
  virtual void on_block_end(const BlockName& block, const TensorView& h);
};

/// Whoever runs a long pass and may do something else in the middle of it. Where a context has one, products
/// and attentions are cut by rows into pieces, and it is asked behind each; the bits of a row are those of
/// the whole wherever they do not depend on the rows beside it.
class PassPauses {
 public:
  virtual ~PassPauses() = default;
  /// How much a piece may be, floating-point operations; infinity: operations stay whole.
  virtual double piece_flop() const noexcept = 0;
  /// A piece of `flop` was computed; 0: small operations. May throw to end the pass.
  virtual void pause(double flop) = 0;
};

/// Hears of attention over a cache, before it runs and with the step's keys and values written. Other than an
/// observer it changes nothing in how a step is computed. Steps with a listener are not recorded.
class CacheAttentionListener {
 public:
  virtual ~CacheAttentionListener() = default;
  /// q [T, H, Dh], where the backend has it.
  virtual void on_cache_attention(Backend& backend, const KvCache& cache, int layer,
                                  std::span<const KvSequence> sequences, const CacheAttention& how,
                                  const TensorView& q) = 0;
};

class ExecContext {
 public:
  /// Borrows all four. `observer` and `pauses` may be null.
  ExecContext(Backend& backend, Arena& arena, ExecObserver* observer = nullptr, PassPauses* pauses = nullptr)
      : backend_(backend), arena_(arena), observer_(observer), pauses_(pauses) {}

  /// Null: nobody.
  void set_cache_listener(CacheAttentionListener* listener) noexcept { cache_listener_ = listener; }

  Backend& backend() noexcept { return backend_; }
  Arena& arena() noexcept { return arena_; }
  /// True when someone listens: models then also run parts whose result nothing else needs.
  bool tapping() const noexcept { return observer_ != nullptr && observer_->wants_taps(); }

  /// Patches that products of pixels took so far (rows of their inputs), and values of one of them.
  struct PatchRows {
    std::int64_t n_rows = 0;
    std::int64_t n_values = 0;
  };
  const PatchRows& patch_rows() const noexcept { return patch_rows_; }

  /// Computes on this processor what operations read (angles of positions), in its place among them: now, or,
  /// when the step is recorded, each time the plan runs. `computation` holds copies of views and spans of the
  /// arena and of the step's inputs, and must not keep anything else that ends with the step. What it writes
  /// is host memory: spans, or tensors of empty_host, which operations read once they are uploaded.
  template <typename Computation>
  void host(Computation computation) {
    if (backend_.is_recording()) return backend_.record_host(std::move(computation));
    computation();
  }

  /// New float32 tensor in the arena, not initialised: for operations, or for this processor to write.
  TensorView empty(const Shape& shape) { return arena_.make(DType::kF32, shape); }
  TensorView empty_host(const Shape& shape) { return arena_.make_host(DType::kF32, shape); }
  /// A tensor in host memory (staged by a computation, pixels) as an operand, and an operand as a tensor that
  /// this processor reads. Operations like the others; where both share one memory, x itself and no copy.
  TensorView upload(const TensorView& x);
  TensorView download(const TensorView& x);

  /// Runs `body`, one block of a tower or decoder, on h [T, D]: what it takes from the arena ends with it, an
  /// observer hears where it begins and ends, and h is tapped under the block's name. Parts that `body` names
  /// (linear_add, tap_input) are tapped as "<block>.<part>", in block 0 only: the others repeat it.
  template <typename Body>
  void block(const BlockName& name, TensorView& h, Body&& body) {
    const BlockScope scope(*this, name);
    show_block(name, h, true);
    count_rows(name, h.dim(0));
    body();
    if (tapping()) show(name.text(), h);
    show_block(name, h, false);
    if (pauses_ != nullptr) pauses_->pause(0);
  }
  /// Rows that went into the first block, each time it ran: what a tower or decoder really computed.
  std::int64_t n_block_rows() const noexcept { return n_block_rows_; }

  // Operations; each returns its output from the arena unless it says "in place". Shape errors throw
  // Error(kInternal) that names the operation and both shapes.

  /// x W^T + b: [T, N].
  TensorView linear(const LinearWeight& w, const LinearInput& x);
  /// activation(x W^T + b) for the linear that was linked as its reader (LinearWeight::set_reader): [T, N].
  Activations linear(const LinearWeight& w, const LinearInput& x, Activation activation);
  /// h += x W^T + b. `part` names the product among the taps of the running block; empty: it is not tapped.
  void linear_add(const LinearWeight& w, const LinearInput& x, TensorView h, std::string_view part = {});
  /// y = activation(x W^T + b) + residual, where the residual may be y itself. Every product that ends in
  /// float32 rows, save a gated one, passes here: of a weight that holds only a part of the columns of a
  /// matrix (LinearWeight::is_partial) the results are summed over the devices at this one place, before
  /// activation and residual, which therefore count once.
  void linear_into(const LinearWeight& w, const LinearInput& x, TensorView y,
                   const LinearEpilogue& epilogue = {});
  TensorView embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids);
  /// y [Tq, H * Dh].
  TensorView attention(const AttentionArgs& args);
  void kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                 std::span<const std::int32_t> slots);
  /// q [T, H, Dh] -> y [T, H * Dh]. `how`: the scores' scale, and a window where the layer has one.
  TensorView paged_attention(const KvCache& cache, int layer, std::span<const KvSequence> sequences,
                             const CacheAttention& how, const TensorView& q);
  TensorView layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps);
  TensorView rms_norm(const TensorView& x, const TensorView& weight, float eps);
  /// In place: x may be a strided [T, H, Dh] view.
  void layer_norm_inplace(TensorView x, const TensorView& weight, const TensorView& bias, float eps);
  void rms_norm_inplace(TensorView x, const TensorView& weight, float eps);
  void rope(TensorView x, const TensorView& cos, const TensorView& sin);
  void activation(Activation kind, TensorView x);  // in place
  TensorView gated_activation(Activation kind, const TensorView& gate_up);
  /// gated_activation(kind, linear(gate_up, x)) for the linear that reads it: x [T, K] -> [T, N / 2].
  Activations gated_linear(Activation kind, const LinearWeight& gate_up, const LinearInput& x);
  TensorView add(const TensorView& a, const TensorView& b);
  void add_inplace(TensorView a, const TensorView& b);  // a += b
  void scale_rows(TensorView x, std::span<const float> factors);
  TensorView gather_rows(const TensorView& src, std::span<const std::int32_t> rows);
  void scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView dst);
  /// h[rows[i]] += x[i]; the rows are all different.
  void add_rows(const TensorView& x, std::span<const std::int32_t> rows, TensorView h);
  /// Pixels behind the last whole patch are not read, as a convolution without padding does (SigLIP: 384 in
  /// patches of 14).
  TensorView patchify(const TensorView& picture, int patch_size_px);
  /// Elements of `from` into `to`; strides may differ.
  void copy(const TensorView& from, TensorView to);

  /// Shows a value under a formatted name; costs one branch when nobody listens.
  template <typename... Args>
  void tap(const TensorView& value, fmt::format_string<Args...> name, Args&&... args) {
    if (tapping()) show(fmt::format(name, std::forward<Args>(args)...), value);
  }
  /// x, tapped as `part` of the running block; a norm is stored for that.
  LinearInput tap_input(const LinearInput& x, std::string_view part);

 private:
  class BlockScope {
   public:
    BlockScope(ExecContext& cx, const BlockName& name) : cx_(cx), outer_(cx.block_), scratch_(cx.arena_) {
      cx.block_ = &name;
    }
    ~BlockScope() { cx_.block_ = outer_; }
    BlockScope(const BlockScope&) = delete;
    BlockScope& operator=(const BlockScope&) = delete;

   private:
    ExecContext& cx_;
    const BlockName* outer_;
    ArenaScope scratch_;
  };

  // To the observer.
  void show(std::string_view name, const TensorView& value);
  void show_input(const LinearWeight& w, const TensorView& x);
  void show_block(const BlockName& name, const TensorView& h, bool begins);
  // x as the backend takes it: normed here where it does not norm rows, or where someone wants to see them.
  LinearInput input_for(const LinearWeight& w, const LinearInput& x);
  TensorView norm_rows(const LinearInput& x);
  void check_input(const char* op, const LinearWeight& w, const LinearInput& x) const;
  // Whether products of w write the int8 activations that its reader multiplies.
  bool writes_int8(const LinearWeight& w) const;
  // Not initialised; sets what the epilogue says of them.
  LinearInput empty_int8(const LinearWeight& reader, std::int64_t n_rows, LinearEpilogue& epilogue);
  void partial_linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
                      TensorView y);
  void count_rows(const BlockName& name, std::int64_t n_rows) {
    if (first_module_.empty()) first_module_ = name.module;
    if (name.index == 0 && name.module == first_module_) n_block_rows_ += n_rows;
  }
  // Calls body(begin, end) for pieces of the rows.
  template <typename Body>
  void in_pieces(std::int64_t n_rows, double row_flop, Body&& body);
  bool gated_in_pieces(const LinearWeight& gate_up, const LinearInput& x, const LinearEpilogue& epilogue,
                       const TensorView& y);
  void attention_in_pieces(const AttentionArgs& args, const TensorView& y);
  bool taps_part(std::string_view part) const noexcept {
    return tapping() && block_ != nullptr && block_->index == 0 && !part.empty();
  }

  Backend& backend_;
  Arena& arena_;
  ExecObserver* observer_;
  PassPauses* pauses_;
  CacheAttentionListener* cache_listener_ = nullptr;
  const BlockName* block_ = nullptr;  // the running one
  std::string_view first_module_;     // whose blocks came first
  std::int64_t n_block_rows_ = 0;
  PatchRows patch_rows_;
};

}  // namespace triptych
