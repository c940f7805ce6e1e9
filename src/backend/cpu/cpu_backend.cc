// The Backend interface over the operations of this folder, and the operations that are a loop over rows.
#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "backend/cpu/attention.h"
#include "backend/cpu/cached_tokens.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/linear_groups.h"
#include "backend/cpu/linear_s4.h"
#include "backend/cpu/linear_s8.h"
#include "backend/cpu/recorded_step.h"
#include "backend/cpu/runtime.h"
#include "base/error.h"

namespace triptych {
namespace {

using cpu::CpuKvCache;
using cpu::Runtime;

class CpuEmbedding final : public EmbeddingWeight {
 public:
  explicit CpuEmbedding(const WeightEntry& table)
      : view_(table.view), owner_(table.owner), type_(cpu::element_type_of(table.view.dtype(), table.name)) {
    if (view_.rank() != 2 || view_.data() == nullptr)
      fail(ErrorCode::kInvalidFile, "{}: expected a table [V, D], got {}", table.name,
           to_string(view_.shape()));
  }
  std::int64_t n_rows() const noexcept override { return view_.dim(0); }
  std::int64_t width() const noexcept override { return view_.dim(1); }
  ElementType type() const noexcept { return type_; }
  const std::byte* row(std::int64_t i) const noexcept {
    return view_.data() + i * view_.row_stride() * static_cast<std::ptrdiff_t>(element_bytes(type_));
  }

 private:
  TensorView view_;
  std::shared_ptr<const void> owner_;
  ElementType type_;
};

// A view of rank 2 or 3 as rows of its last dimension.
struct Rows {
  float* data;
  std::int64_t n;
  std::int64_t inner;  // rows per entry of the first dimension
  std::ptrdiff_t outer_stride;
  std::ptrdiff_t inner_stride;
  std::int64_t width;

  explicit Rows(const TensorView& x)
      : data(x.f32()),
        n(x.rank() == 3 ? x.dim(0) * x.dim(1) : (x.rank() == 2 ? x.dim(0) : 1)),
        inner(x.rank() == 3 ? x.dim(1) : 1),
        outer_stride(x.row_stride()),
        inner_stride(x.rank() == 3 ? x.stride(1) : 0),
        width(x.dim(-1)) {
    TRIPTYCH_CHECK(x.rank() >= 1 && x.rank() <= 3, "expected rank 1 to 3, got {}", x.rank());
  }
  float* row(std::int64_t i) const noexcept {
    return data + i / inner * outer_stride + i % inner * inner_stride;
  }
};

// `n_out` is the width of y, without the padding of int8 rows.
cpu::LinearArgs linear_args(const LinearInput& x, const LinearEpilogue& epilogue, std::int64_t n_out,
                            const TensorView& y) {
  cpu::LinearArgs args = {};
  args.n_rows = x.rows.dim(0);
  args.function = epilogue.activation;
  args.x_quant = epilogue.x_quant;
  if (x.is_int8()) {
    args.x_int8 = x.rows.as<std::int8_t>();
    args.x_int8_stride = x.rows.row_stride();
    args.x_scales = x.int8_scales.cf32();
  } else {
    args.x = x.rows.cf32();
    args.x_stride = x.rows.row_stride();
  }
  if (epilogue.y_quant.step > 0) {
    args.y_quant = epilogue.y_quant;
    args.y_int8 = y.as<std::int8_t>();
    args.y_int8_stride = y.row_stride();
    args.n_y_int8 = n_out;
    args.y_scales = epilogue.int8_scales.f32();
  } else {
    args.y = y.f32();
    args.y_stride = y.row_stride();
  }
  if (epilogue.residual.data() != nullptr) {
    args.residual = epilogue.residual.cf32();
    args.residual_stride = epilogue.residual.row_stride();
  }
  args.norm = x.norm;
  if (x.norm == LinearInput::Norm::kNone) return args;
  args.norm_weight = x.weight.cf32();
  args.norm_bias = x.bias.data() != nullptr ? x.bias.cf32() : nullptr;
  args.norm_eps = x.eps;
  return args;
}

// Columns that are not in the order of the inputs, or scaled, would have to be put right in every product:
// only values can be taken from such a matrix, which costs accuracy, so it must be asked for.
void check_can_take(const LinearSpec& spec) {
  if (spec.format) return;
  for (const LinearPart& part : spec.parts)
    if (const QuantizedSource* source = part.quantized(); source != nullptr && !source->is_plain())
      fail(ErrorCode::kUnsupported,
           "{}: the CPU backend does not multiply a quantized matrix with {}; give a format, and its values "
           "are "
           "quantized anew",
           source->name,
           !source->input_scales.empty()  ? "input scales"
           : !source->permutation.empty() ? "permuted columns"
                                          : "a group index");
}

// Before anything runs: what makes a runtime also measures.
CpuFeatures checked(CpuFeatures features) {
  const CpuFeatures lacking = features - granted_features(features);
  if (!lacking.empty()) fail(ErrorCode::kInvalidArgument, "this machine lacks {}", to_string(lacking));
  return features;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options)
      : runtime_(options.n_threads, options.pin, options.isa ? checked(*options.isa) : active_features(),
                 options.policy, options.tuning) {}

  std::string describe() const override {
    return fmt::format("cpu {}, {} thread{}", to_string(preset_of(runtime_.features)), n_threads(),
                       n_threads() == 1 ? "" : "s");
  }
  int n_threads() const noexcept override { return runtime_.n_threads(); }

  std::int64_t n_parallel_loops() const noexcept override { return runtime_.n_parallel_loops(); }

  std::unique_ptr<LinearWeight> prepare_linear(const LinearSpec& spec) override {
    const std::optional<QuantFormat> target = spec.target_format();
    if (!target) return std::make_unique<cpu::CpuLinear>(spec);
    check_can_take(spec);
    const QuantFormat& format = *target;
    const std::scoped_lock lock(mutex_);
    if (format.code == QuantCode::kInt8 && format.group_size == QuantFormat::kWholeRow)
      return std::make_unique<cpu::CpuLinearS8>(runtime_, spec);
    if (format.code == QuantCode::kInt8 || format.code == QuantCode::kNf4)
      return std::make_unique<cpu::CpuLinearGroups>(runtime_, spec);
    if (format.code == QuantCode::kInt4) return std::make_unique<cpu::CpuLinearS4>(runtime_, spec);
    fail(ErrorCode::kUnsupported, "{}: the CPU backend computes with int8, int4 and nf4, not {}", spec.name,
         format.to_string());
  }
  std::unique_ptr<EmbeddingWeight> prepare_embedding(const WeightEntry& table) override {
    advise(table, ReadPattern::kScatteredRows);
    return std::make_unique<CpuEmbedding>(table);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvGeometry& geometry) override {
    auto out = std::make_unique<CpuKvCache>(geometry);
    const std::scoped_lock lock(mutex_);
    runtime_.reserve_thread_scratch(static_cast<std::size_t>(geometry.head_dim));  // for kv_append
    return out;
  }

  bool norms_rows(const LinearWeight& w) const noexcept override { return w.multiplies_int8(); }

  bool begin_recording() override {
    TRIPTYCH_CHECK(t_recording.step == nullptr, "this thread records a step already");
    t_recording = {this, std::make_unique<cpu::RecordedStep>(mutex_)};
    return true;
  }
  std::unique_ptr<StepPlan> end_recording() override {
    TRIPTYCH_CHECK(is_recording(), "this thread does not record a step");
    return std::exchange(t_recording, {}).step;
  }
  bool is_recording() const noexcept override { return t_recording.backend == this; }
  void record_host(std::function<void()> computation) override {
    TRIPTYCH_CHECK(is_recording(), "this thread does not record a step");
    t_recording.step->add(std::move(computation));
  }

  void linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
              TensorView& y) override {
    if (x.rows.dim(0) == 0) return;
    cpu::LinearArgs args = linear_args(x, epilogue, w.n_out(), y);
    args.lean = w.multiplies_int8();
    multiply(static_cast<const cpu::CpuWeight&>(w), args);
  }

  bool writes_int8_for(const LinearWeight&) const noexcept override { return true; }

  bool gated_linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
                    TensorView& y) override {
    const auto& weight = static_cast<const cpu::CpuWeight&>(w);
    if (!weight.multiplies_gated()) return false;
    cpu::LinearArgs args = linear_args(x, epilogue, w.n_out() / 2, y);
    args.lean = true;
    args.gated = true;
    multiply(weight, args);
    return true;
  }

  void embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids, TensorView& y) override {
    const auto& table = static_cast<const CpuEmbedding&>(w);
    const Rows to(y);
    over_rows(to.n, 8 * to.width, [this, &table, ids, to](std::int64_t i) {
      runtime_.rows.widen(table.type(), to.width, table.row(ids[static_cast<std::size_t>(i)]), to.row(i));
    });
  }

  bool attends_in_int8(std::optional<KvDType> cache) const noexcept override {
    if (!cpu::gains_by_int8_attention(runtime_.features)) return false;
    return cache ? *cache == KvDType::kInt8 : runtime_.policy.int8_attention;
  }
  void attention(const AttentionArgs& args, TensorView& y) override {
    submit_alone([this, args, y] { cpu::attention(runtime_, args, y); });
  }
  void kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                 std::span<const std::int32_t> slots) override {
    auto& pages = static_cast<CpuKvCache&>(cache);
    submit_alone([this, &pages, layer, k, v, slots] { cpu::kv_append(runtime_, pages, layer, k, v, slots); });
  }
  void paged_attention(const KvCache& cache, int layer, std::span<const KvSequence> sequences,
                       const CacheAttention& how, const TensorView& q, TensorView& y) override {
    const auto& pages = static_cast<const CpuKvCache&>(cache);
    const cpu::PagedPlan plan = cpu::plan_paged_attention(runtime_, pages, sequences, q);
    submit_alone([this, &pages, layer, sequences, how, q, y, plan] {
      cpu::paged_attention(runtime_, pages, layer, sequences, how, q, y, plan);
    });
  }
  void key_norms(const KvCache& cache, int layer, std::span<const std::int32_t> slots,
                 std::span<float> norms) override {
    const auto& pages = static_cast<const CpuKvCache&>(cache);
    const std::scoped_lock lock(mutex_);
    cpu::key_norms(runtime_, pages, layer, slots, norms);
  }
  void add_received_attention(const KvCache& cache, int layer, const KvSequence& s, const CacheAttention& how,
                              const TensorView& q, std::span<float> received) override {
    const auto& pages = static_cast<const CpuKvCache&>(cache);
    const std::scoped_lock lock(mutex_);
    cpu::add_received_attention(runtime_, pages, layer, s, how, q, received);
  }
  void move_cached_tokens(KvCache& cache, std::span<const std::int32_t> from,
                          std::span<const std::int32_t> to) override {
    const std::scoped_lock lock(mutex_);
    cpu::move_cached_tokens(runtime_, static_cast<CpuKvCache&>(cache), from, to);
  }

  void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                  TensorView& y) override {
    const Rows from(x);
    const Rows to(y);
    const float* w = weight.cf32();
    const float* b = bias.data() != nullptr ? bias.cf32() : nullptr;
    over_rows(from.n, 16 * from.width, [this, from, to, w, b, eps](std::int64_t i) {
      runtime_.norm.layer_norm(from.width, from.row(i), w, b, eps, to.row(i));
    });
  }
  void rms_norm(const TensorView& x, const TensorView& weight, float eps, TensorView& y) override {
    const Rows from(x);
    const Rows to(y);
    over_rows(from.n, 12 * from.width, [this, from, to, w = weight.cf32(), eps](std::int64_t i) {
      runtime_.norm.rms_norm(from.width, from.row(i), w, eps, to.row(i));
    });
  }

  void rope(TensorView& x, const TensorView& cos, const TensorView& sin) override {
    const Rows rows(x);
    const Rows c(cos);
    const Rows s(sin);
    over_rows(rows.n, 8 * rows.width, [this, rows, c, s](std::int64_t i) {
      const std::int64_t t = i / rows.inner;
      runtime_.pointwise.rotate_half(c.width, c.row(t), s.row(t), rows.row(i));
    });
  }

  void activation(Activation kind, const TensorView& x, TensorView& y) override {
    const Rows from(x);
    const Rows to(y);
    over_rows(from.n, 16 * from.width, [this, from, to, kind](std::int64_t i) {
      runtime_.pointwise.epilogue({kind, from.width, from.row(i), nullptr, nullptr, to.row(i)});
    });
  }
  void gated_activation(Activation kind, const TensorView& gate_up, TensorView& y) override {
    const Rows from(gate_up);
    const Rows to(y);
    over_rows(to.n, 24 * to.width, [this, from, to, kind](std::int64_t i) {
      runtime_.pointwise.gated(
          {kind, to.width, from.row(i), from.row(i) + to.width, nullptr, nullptr, to.row(i)});
    });
  }
  void add(const TensorView& a, const TensorView& b, TensorView& y) override {
    const Rows left(a);
    const Rows right(b);
    const Rows to(y);
    over_rows(to.n, 12 * to.width, [this, left, right, to](std::int64_t i) {
      runtime_.pointwise.add(to.width, left.row(i), right.row(i), to.row(i));
    });
  }
  void scale_rows(TensorView& x, std::span<const float> factors) override {
    const Rows rows(x);
    over_rows(rows.n, 8 * rows.width, [this, rows, factors](std::int64_t i) {
      const float factor = factors[static_cast<std::size_t>(i / rows.inner)];
      runtime_.pointwise.scale(rows.width, factor, rows.row(i), rows.row(i));
    });
  }
  void copy(const TensorView& from, TensorView& to) override {
    submit([from, to] { triptych::copy(from, to); });
  }

  void gather_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) override {
    const Rows from(src);
    const Rows to(dst);
    over_rows(to.n, 8 * to.width, [from, rows, to](std::int64_t i) {
      std::memcpy(to.row(i), from.row(rows[static_cast<std::size_t>(i)]), row_size_bytes(to));
    });
  }
  void scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) override {
    // In order: when an index appears twice the later row wins.
    submit([from = Rows(src), rows, to = Rows(dst)] {
      for (std::int64_t i = 0; i < from.n; ++i)
        std::memcpy(to.row(rows[static_cast<std::size_t>(i)]), from.row(i), row_size_bytes(from));
    });
  }
  void patchify(const TensorView& picture, int patch_size_px, TensorView& rows) override {
    const Rows to(rows);
    over_rows(to.n, 8 * to.width, [picture, p = std::int64_t{patch_size_px}, to](std::int64_t i) {
      const std::int64_t gw = picture.dim(2) / p;
      float* out = to.row(i);
      for (std::int64_t c = 0; c < picture.dim(0); ++c) {
        const float* corner =
            picture.cf32() + c * picture.stride(0) + i / gw * p * picture.stride(1) + i % gw * p;
        for (std::int64_t line = 0; line < p; ++line, out += p)
          std::memcpy(out, corner + line * picture.stride(1), static_cast<std::size_t>(p) * sizeof(float));
      }
    });
  }

 private:
  // What this thread records, and for which backend.
  struct Recording {
    const CpuBackend* backend = nullptr;
    std::unique_ptr<cpu::RecordedStep> step;
  };
  static thread_local Recording t_recording;

  static std::size_t row_size_bytes(const Rows& rows) {
    return static_cast<std::size_t>(rows.width) * sizeof(float);
  }

  // Every operation ends in one of these two: it runs now, or is noted. What it captures is all it needs
  // later.
  template <typename Operation>
  void submit(const Operation& operation) {
    if (is_recording()) return t_recording.step->add(operation);
    operation();
  }
  // The same for what uses scratch memory.
  template <typename Operation>
  void submit_alone(const Operation& operation) {
    if (is_recording()) return t_recording.step->add(operation);
    const std::scoped_lock lock(mutex_);
    operation();
  }

  void multiply(const cpu::CpuWeight& weight, const cpu::LinearArgs& args) {
    const cpu::ProductPlan plan = weight.plan(runtime_, args);
    submit_alone([this, &weight, args, plan] {
      if (args.y_int8 != nullptr) cpu::begin_int8_rows(args);
      weight.run(runtime_, args, plan);
    });
  }

  // body(i) for i in [0, n); body holds copies of what it uses.
  template <typename Body>
  void over_rows(std::int64_t n, std::int64_t cost_bytes, Body body) {
    submit([this, loop = runtime_.plan_loop(n, cost_bytes), body] {
      runtime_.parallel(loop, [&body](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) body(i);
      });
    });
  }

  Runtime runtime_;
  std::mutex mutex_;  // scratch memory is shared by the operations
};

thread_local CpuBackend::Recording CpuBackend::t_recording;

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace triptych
