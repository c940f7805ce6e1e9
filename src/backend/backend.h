// The one door to hardware: memory, weights, operations. Models and layers speak to this interface (through
// ExecContext) and nothing below it. Activations are float32 rows; how weights are stored, packed or
// quantized is the backend's secret.
//
// Operands were checked by ExecContext: shapes agree, last dimensions are dense. An operation runs to its end
// before it returns (a device backend may queue instead and order work by itself). Views are in the backend's
// memory (memory_kind), spans in host memory: what they hold is read before the operation returns or,
// recorded, each time the plan runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/linear_source.h"
#include "backend/op_args.h"
#include "tensor/arena.h"
#include "tensor/dtype.h"
#include "tensor/packed_linear.h"
#include "tensor/quant_format.h"
#include "tensor/tensor.h"
#include "tensor/weight_table.h"

namespace triptych {

/// A matrix [N, K], ready for products, with its bias if it has one. Made by prepare_linear; immutable save
/// for its reader, which whoever binds both says once.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  virtual std::int64_t n_out() const noexcept = 0;
  virtual std::int64_t n_in() const noexcept = 0;
  /// Private memory this weight takes beyond the checkpoint's own mapping, bytes.
  virtual std::size_t owned_bytes() const noexcept = 0;
  /// Bytes it uses in place of memory that something else owns: the checkpoint's mapping, or a converted
  /// copy.
  virtual std::size_t borrowed_bytes() const noexcept { return 0; }
  /// Bytes that one pass over the weight reads (for rooflines).
  virtual std::size_t read_bytes() const noexcept = 0;
  /// Whether its products are of 8-bit integers (for rooflines).
  virtual bool multiplies_int8() const noexcept { return false; }
  /// Static quantization parameters of its inputs; none: each row by itself, or not at all.
  virtual ActivationQuant activation_quant() const noexcept { return {}; }
  /// The weight as it can be stored and borrowed again (PackedLinear); empty when it is not quantized.
  virtual std::vector<PackedArray> packed() const { return {}; }
  /// Whether it holds only some columns of a matrix whose others lie on other devices (row parallelism): its
  /// products are summands (Backend::all_reduce). One of the devices holds the bias.
  virtual bool is_partial() const noexcept { return false; }

  /// The linear that alone multiplies this one's activated output, and must live as long; null: not said.
  /// Products may then be written as that linear wants them, as int8 activations.
  const LinearWeight* reader() const noexcept { return reader_; }
  void set_reader(const LinearWeight& reader) noexcept { reader_ = &reader; }

  /// Whether it multiplies pixels: a row of its input is a patch (LinearRole::kPixelInput).
  bool takes_pixels() const noexcept { return takes_pixels_; }
  void set_takes_pixels() noexcept { takes_pixels_ = true; }

 private:
  const LinearWeight* reader_ = nullptr;
  bool takes_pixels_ = false;
};

/// An embedding table [V, D]. Made by prepare_embedding; immutable.
class EmbeddingWeight {
 public:
  virtual ~EmbeddingWeight() = default;
  virtual std::int64_t n_rows() const noexcept = 0;
  virtual std::int64_t width() const noexcept = 0;
};

/// Keys and values of all layers in pages. Its bytes belong to the backend, what a page means to the engine.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvGeometry& geometry() const noexcept = 0;
  /// With all pages in use; a page takes its memory when it is first written.
  virtual std::size_t bytes() const noexcept = 0;
  /// What these pages hold is not needed any more.
  virtual void release_pages(std::span<const std::int32_t> pages) noexcept = 0;
  /// Page `to` becomes what `from`, which was written, holds. Throws Error(kOutOfMemory).
  virtual void copy_page(std::int32_t from, std::int32_t to) = 0;
  /// Bytes of one page, laid out as the backend likes.
  virtual std::size_t page_bytes() const noexcept = 0;
  /// The bytes of a page of which the first n_rows rows were written; those behind read as 0. `to` and `from`
  /// have page_bytes() bytes, host memory. write_page throws Error(kOutOfMemory).
  virtual void read_page(std::int32_t page, int n_rows, std::span<std::byte> to) const = 0;
  virtual void write_page(std::int32_t page, std::span<const std::byte> from) = 0;
};

/// What decides how a step's work is cut: steps of the same shape are the same sequence of operations.
struct StepShape {
  std::int64_t n_rows = 0;
  std::int64_t n_sequences = 0;
};

/// The operations of a step as a backend recorded them: what shapes decide is decided, operands are
/// addresses. It borrows everything the operations were given, so it must go before any of that does, the
/// backend too.
class StepPlan {
 public:
  virtual ~StepPlan() = default;
  /// The operations in their order, on what their operands hold now. Throws what they throw; the plan stays
  /// usable then.
  virtual void run() = 0;
  virtual std::int64_t n_operations() const noexcept = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// E.g. "cpu avx512_bf16, 2 threads".
  virtual std::string describe() const = 0;
  virtual int n_threads() const noexcept = 0;

  /// Where the operands of operations lie. kHost (default): this processor and the backend share one memory,
  /// and nothing has to be copied between them.
  virtual MemoryKind memory_kind() const noexcept { return MemoryKind::kHost; }
  /// Memory for operands (kDevice) or host memory that is fast to copy from and to it, 64-byte aligned, not
  /// initialised. Default: this processor's for both. Throws Error(kOutOfMemory).
  virtual Buffer allocate(std::size_t size_bytes, MemoryKind kind = MemoryKind::kDevice);
  /// Elements of host memory into an operand of the same shape and dtype, and back; strides may differ.
  /// `from` of an upload may be written to when it returns, `to` of a download be read; recorded, when the
  /// plan has run. Default: copy.
  virtual void upload(const TensorView& from, TensorView& to);
  virtual void download(const TensorView& from, TensorView& to);

  // Weights. Throw Error(kUnsupported) for a type, format or layout that the backend cannot use, naming the
  // tensor.
  virtual std::unique_ptr<LinearWeight> prepare_linear(const LinearSpec& spec) = 0;
  virtual std::unique_ptr<EmbeddingWeight> prepare_embedding(const WeightEntry& table) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvGeometry& geometry) = 0;

  /// Brackets the operations of one forward pass, replayed or not (StepScope does). Default: nothing.
  virtual void begin_step(const StepShape& shape);
  virtual void end_step() noexcept;

  // Recording, as a CUDA backend captures a stream. Between the two calls the operations that this thread
  // asks for are noted and not run; other threads' run as ever. Values that change from step to step
  // (indices, lengths, pages) are read when the plan runs, through the spans that were given, so these must
  // stay where they are. Code that computes on this processor between operations goes through
  // ExecContext::host.
  /// False: this backend does not record. Default.
  virtual bool begin_recording() { return false; }
  virtual std::unique_ptr<StepPlan> end_recording() { return nullptr; }
  virtual bool is_recording() const noexcept { return false; }
  /// A computation in its place among the operations, a host node of a CUDA graph. While recording only.
  virtual void record_host(std::function<void()> computation);
  /// Loops so far that were handed to several threads, for reports. Default: none.
  virtual std::int64_t n_parallel_loops() const noexcept { return 0; }

  // Products. x [T, K], y [T, N], or int8 activations (op_args.h).
  /// Whether products with this weight norm their rows; where not, LinearInput::norm is kNone.
  virtual bool norms_rows(const LinearWeight&) const noexcept { return false; }
  virtual void linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
                      TensorView& y) = 0;
  /// y [T, N / 2] = activation(x Wg^T + bg) * (x Wu^T + bu), where w stacks Wg and Wu, in one go; of the
  /// epilogue no residual. False, and y untouched, where this backend gains nothing by it: linear and
  /// gated_activation do the same then.
  virtual bool gated_linear(const LinearWeight&, const LinearInput&, const LinearEpilogue&, TensorView&) {
    return false;
  }
  /// Whether linears write their outputs as int8 activations for this one, which is their only reader.
  virtual bool writes_int8_for(const LinearWeight&) const noexcept { return false; }
  /// y becomes the sum of all devices' y, on each of them; for products of partial weights
  /// (LinearWeight::is_partial). Default: fails, for a backend that is one device.
  virtual void all_reduce(TensorView& y);
  /// y [T, D] = rows of the table; every id was checked to lie in it.
  virtual void embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids, TensorView& y) = 0;

  /// Whether attention of many rows multiplies 8-bit integers (for rooflines): over plain tensors, or over a
  /// cache of this type.
  virtual bool attends_in_int8(std::optional<KvDType>) const noexcept { return false; }

  // Attention.
  virtual void attention(const AttentionArgs& args, TensorView& y) = 0;  // y [Tq, H, Dh]
  /// Writes k, v [T, Hkv, Dh] of one layer to the rows of `slots` [T] (page * page_tokens + row).
  virtual void kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                         std::span<const std::int32_t> slots) = 0;
  /// Causal attention of each sequence's new tokens over its cached keys and values (already appended), in a
  /// window where there is one. q, y [T, H, Dh].
  virtual void paged_attention(const KvCache& cache, int layer, std::span<const KvSequence> sequences,
                               const CacheAttention& how, const TensorView& q, TensorView& y) = 0;

  // The tokens of a cache, for those who keep only some of them. Slots are page * page_tokens + row, of
  // tokens that were written. Between steps, never recorded. Default: fails, for a backend that keeps all.
  /// norms [n, Hkv], in host memory: the Euclidean norms of one layer's keys in `slots` [n].
  virtual void key_norms(const KvCache& cache, int layer, std::span<const std::int32_t> slots,
                         std::span<float> norms);
  /// received [s.n_context], in host memory: to each is added the weight that the sequence's rows in this
  /// step give its key, over all rows and query heads. Arguments as for paged_attention; q [T, H, Dh].
  virtual void add_received_attention(const KvCache& cache, int layer, const KvSequence& s,
                                      const CacheAttention& how, const TensorView& q,
                                      std::span<float> received);
  /// Keys and values of all layers from slot from[i] to slot to[i], in this order: a slot may be written once
  /// it was read. Of a quantized cache a key is rounded again where the two pages' offsets differ.
  virtual void move_cached_tokens(KvCache& cache, std::span<const std::int32_t> from,
                                  std::span<const std::int32_t> to);

  // Normalisation over the last dimension; rows may be strided ([T, D] or [T, H, Dh]). y may be x. Weights
  // float32 [D].
  virtual void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                          TensorView& y) = 0;
  virtual void rms_norm(const TensorView& x, const TensorView& weight, float eps, TensorView& y) = 0;

  /// Rotates x [T, H, Dh] in place: for d < R/2 the pair (d, d + R/2) by the angle whose cos, sin [T, R/2]
  /// are given ("rotate half"; Su et al., RoFormer, section 3.4, in the GPT-NeoX layout). Dimensions from R
  /// on pass through.
  virtual void rope(TensorView& x, const TensorView& cos, const TensorView& sin) = 0;

  // Pointwise. Same shapes; y may be an operand.
  virtual void activation(Activation kind, const TensorView& x, TensorView& y) = 0;
  /// y [T, F] = activation(gate_up[:, :F]) * gate_up[:, F:]  (gate_up [T, 2F]).
  virtual void gated_activation(Activation kind, const TensorView& gate_up, TensorView& y) = 0;
  virtual void add(const TensorView& a, const TensorView& b, TensorView& y) = 0;
  /// Row t of x [T, ...] times factors[t], in place.
  virtual void scale_rows(TensorView& x, std::span<const float> factors) = 0;

  /// Elements of `from` into `to`, same shape, strides may differ. Default: for memory this processor can
  /// reach.
  virtual void copy(const TensorView& from, TensorView& to);

  // Rows. src [n, D], dst [m, D]; indices were checked.
  virtual void gather_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) = 0;
  virtual void scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) = 0;
  /// Picture [C, gh * p, gw * p] to rows [gh * gw, C * p * p], patches row-major, inside a patch as a
  /// convolution weight is flattened (channel, y, x).
  virtual void patchify(const TensorView& picture, int patch_size_px, TensorView& rows) = 0;
};

class StepScope {
 public:
  StepScope(Backend& backend, const StepShape& shape) : backend_(backend) { backend.begin_step(shape); }
  ~StepScope() { backend_.end_step(); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace triptych
