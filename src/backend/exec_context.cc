#include "backend/exec_context.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace triptych {
namespace {

std::string shape_of(const TensorView& x) { return to_string(x.shape()); }

void check_f32(const char* op, const TensorView& x) {
  TRIPTYCH_CHECK(x.dtype() == DType::kF32, "[{}] expected float32, got {}", op, to_string(x.dtype()));
}

// Columns of int8 activations: the kernels read whole groups.
std::int64_t int8_columns(std::int64_t k) { return (k + 7) / 8 * 8; }

// Rank 2 with `width` columns (any when negative).
void check_rows(const char* op, const TensorView& x, std::int64_t width) {
  check_f32(op, x);
  TRIPTYCH_CHECK(x.rank() == 2 && (width < 0 || x.dim(1) == width), "[{}] expected [T, {}], got {}", op,
                 width, shape_of(x));
}

void check_heads(const char* op, const TensorView& x) {
  check_f32(op, x);
  TRIPTYCH_CHECK(x.rank() == 3, "[{}] expected [T, H, Dh], got {}", op, shape_of(x));
}

void check_same(const char* op, const TensorView& a, const TensorView& b) {
  check_f32(op, a);
  check_f32(op, b);
  TRIPTYCH_CHECK(a.shape() == b.shape(), "[{}] shapes differ: {} and {}", op, shape_of(a), shape_of(b));
}

void check_norm(const char* op, const TensorView& x, const TensorView& weight) {
  check_f32(op, x);
  TRIPTYCH_CHECK(x.rank() >= 2 && x.rank() <= 3, "[{}] expected rank 2 or 3, got {}", op, shape_of(x));
  TRIPTYCH_CHECK(weight.rank() == 1 && weight.dim(0) == x.dim(x.rank() - 1),
                 "[{}] weight {} does not fit x {}", op, shape_of(weight), shape_of(x));
}

void check_segments(const char* op, std::span<const std::int32_t> cu, std::int64_t rows) {
  TRIPTYCH_CHECK(!cu.empty() && cu.front() == 0 && cu.back() == rows,
                 "[{}] segments do not cover the {} rows", op, rows);
  for (std::size_t i = 1; i < cu.size(); ++i)
    TRIPTYCH_CHECK(cu[i - 1] <= cu[i], "[{}] segment offsets decrease", op);
}

void check_row_indices(const char* op, std::span<const std::int32_t> rows, std::int64_t n) {
  for (const std::int32_t row : rows) TRIPTYCH_CHECK(row >= 0 && row < n, "[{}] row {} of {}", op, row, n);
}

// Fewer rows do not repay reading a weight, and may take another algorithm than many.
constexpr std::int64_t kMinPieceRows = 64;

// A multiply and an add for each element of the weight.
double flop_per_row(const LinearWeight& w) {
  return 2.0 * static_cast<double>(w.n_in()) * static_cast<double>(w.n_out());
}

LinearInput rows_of(const LinearInput& x, std::int64_t begin, std::int64_t end) {
  LinearInput out = x;
  out.rows = x.rows.rows(begin, end);
  if (x.is_int8()) out.int8_scales = x.int8_scales.rows(begin, end);
  return out;
}

LinearEpilogue rows_of(const LinearEpilogue& epilogue, std::int64_t begin, std::int64_t end) {
  LinearEpilogue out = epilogue;
  if (epilogue.residual.data() != nullptr) out.residual = epilogue.residual.rows(begin, end);
  if (epilogue.int8_scales.data() != nullptr) out.int8_scales = epilogue.int8_scales.rows(begin, end);
  return out;
}

// Tells an observer, if there is one, when an operation begins and ends.
class Bracket {
 public:
  Bracket(ExecObserver* observer, const char* operation) : observer_(observer) {
    if (observer_ != nullptr) observer_->on_begin(operation);
  }
  ~Bracket() {
    if (observer_ != nullptr) observer_->on_end();
  }
  Bracket(const Bracket&) = delete;
  Bracket& operator=(const Bracket&) = delete;

 private:
  ExecObserver* observer_;
};

}  // namespace

bool ExecObserver::reads_values() const noexcept { return true; }
void ExecObserver::on_linear(const LinearWeight&, const TensorView&) {}
void ExecObserver::on_attention(const AttentionArgs&) {}
void ExecObserver::on_paged_attention(const KvCache&, std::span<const KvSequence>, const CacheAttention&,
                                      const TensorView&) {}
void ExecObserver::on_begin(const char*) {}
void ExecObserver::on_end() {}
void ExecObserver::on_block_begin(const BlockName&, const TensorView&) {}
void ExecObserver::on_block_end(const BlockName&, const TensorView&) {}

Buffer Backend::allocate(std::size_t size_bytes, MemoryKind) { return Buffer::allocate(size_bytes); }
void Backend::upload(const TensorView& from, TensorView& to) { copy(from, to); }
void Backend::download(const TensorView& from, TensorView& to) { copy(from, to); }
void Backend::begin_step(const StepShape&) {}
void Backend::end_step() noexcept {}
// NOLINTNEXTLINE(performance-unnecessary-value-param): backends that record take it over
void Backend::record_host(std::function<void()>) { TRIPTYCH_CHECK(false, "this backend does not record"); }
void Backend::all_reduce(TensorView&) {
  TRIPTYCH_CHECK(false, "this backend is one device and sums nothing with others");
}
void Backend::key_norms(const KvCache&, int, std::span<const std::int32_t>, std::span<float>) {
  fail(ErrorCode::kUnsupported, "{} gives no norms of cached keys", describe());
}
void Backend::add_received_attention(const KvCache&, int, const KvSequence&, const CacheAttention&,
                                     const TensorView&, std::span<float>) {
  fail(ErrorCode::kUnsupported, "{} gives no attention weights", describe());
}
void Backend::move_cached_tokens(KvCache&, std::span<const std::int32_t>, std::span<const std::int32_t>) {
  fail(ErrorCode::kUnsupported, "{} moves no cached tokens", describe());
}
void Backend::copy(const TensorView& from, TensorView& to) { triptych::copy(from, to); }

TensorView ExecContext::upload(const TensorView& x) {
  if (x.kind() == backend_.memory_kind()) return x;
  TensorView y = arena_.make(x.dtype(), x.shape());
  const Bracket bracket(observer_, "upload");
  backend_.upload(x, y);
  return y;
}

TensorView ExecContext::download(const TensorView& x) {
  if (x.kind() == MemoryKind::kHost) return x;
  TensorView y = arena_.make_host(x.dtype(), x.shape());
  const Bracket bracket(observer_, "download");
  backend_.download(x, y);
  return y;
}

void ExecContext::show(std::string_view name, const TensorView& value) {
  const ArenaScope scratch(arena_);
  observer_->on_tap(name, download(value));
}

void ExecContext::show_input(const LinearWeight& w, const TensorView& x) {
  if (observer_ == nullptr) return;
  const ArenaScope scratch(arena_);
  observer_->on_linear(w, observer_->reads_values() ? download(x) : x);
}

void ExecContext::show_block(const BlockName& name, const TensorView& h, bool begins) {
  if (observer_ == nullptr) return;
  const ArenaScope scratch(arena_);
  const TensorView value = observer_->reads_values() ? download(h) : h;
  begins ? observer_->on_block_begin(name, value) : observer_->on_block_end(name, value);
}

LinearInput ExecContext::input_for(const LinearWeight& w, const LinearInput& x) {
  if (x.norm == LinearInput::Norm::kNone) return x;
  if (observer_ == nullptr && backend_.norms_rows(w)) {
    check_norm("linear norm", x.rows, x.weight);
    if (x.norm == LinearInput::Norm::kLayerNorm) check_norm("linear norm", x.rows, x.bias);
    return x;
  }
  return norm_rows(x);
}

TensorView ExecContext::norm_rows(const LinearInput& x) {
  return x.norm == LinearInput::Norm::kLayerNorm ? layer_norm(x.rows, x.weight, x.bias, x.eps)
                                                 : rms_norm(x.rows, x.weight, x.eps);
}

LinearInput ExecContext::tap_input(const LinearInput& x, std::string_view part) {
  if (!taps_part(part)) return x;
  TRIPTYCH_CHECK(x.norm != LinearInput::Norm::kNone, "[tap_input] {}: rows without a norm", part);
  const TensorView rows = norm_rows(x);
  tap(rows, "{}.{}", block_->text(), part);
  return rows;
}

// Pieces of nearly the same size: a short last one would be a waste.
template <typename Body>
void ExecContext::in_pieces(std::int64_t n_rows, double row_flop, Body&& body) {
  if (pauses_ == nullptr) return body(std::int64_t{0}, n_rows);
  for (std::int64_t begin = 0; begin < n_rows;) {
    const std::int64_t n_left = n_rows - begin;
    const double wanted = std::ceil(static_cast<double>(n_left) * row_flop / pauses_->piece_flop());
    const std::int64_t most = std::max<std::int64_t>(1, n_left / kMinPieceRows);
    const std::int64_t n_pieces = wanted < static_cast<double>(most)
                                      ? std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted))
                                      : most;
    const std::int64_t end = begin + (n_left + n_pieces - 1) / n_pieces;
    body(begin, end);
    pauses_->pause(static_cast<double>(end - begin) * row_flop);
    begin = end;
  }
}

TensorView ExecContext::linear(const LinearWeight& w, const LinearInput& x) {
  TensorView y = empty({x.rows.dim(0), w.n_out()});
  linear_into(w, x, y);
  return y;
}

void ExecContext::linear_add(const LinearWeight& w, const LinearInput& x, TensorView h,
                             std::string_view part) {
  if (!taps_part(part)) return linear_into(w, x, h, {.activation = Activation::kNone, .residual = h});
  const ArenaScope scratch(arena_);
  const TensorView y = linear(w, x);
  tap(y, "{}.{}", block_->text(), part);
  add_inplace(h, y);
}

void ExecContext::check_input(const char* op, const LinearWeight& w, const LinearInput& x) const {
  TRIPTYCH_CHECK(!w.is_partial() || x.norm == LinearInput::Norm::kNone,
                 "[{}] the norm of some columns for a partial weight", op);
  if (!x.is_int8()) return check_rows(op, x.rows, w.n_in());
  TRIPTYCH_CHECK(x.rows.dtype() == DType::kI8 && x.rows.rank() == 2 &&
                     x.rows.dim(1) == int8_columns(w.n_in()) && x.int8_scales.dim(0) == x.rows.dim(0),
                 "[{}] int8 activations {} with {} scales", op, shape_of(x.rows), shape_of(x.int8_scales));
  TRIPTYCH_CHECK(w.activation_quant().step > 0 && x.norm == LinearInput::Norm::kNone,
                 "[{}] int8 activations for a weight without static quantization parameters", op);
}

bool ExecContext::writes_int8(const LinearWeight& w) const {
  const LinearWeight* reader = w.reader();
  return observer_ == nullptr && reader != nullptr && reader->activation_quant().step > 0 &&
         !w.is_partial() && backend_.writes_int8_for(*reader);
}

LinearInput ExecContext::empty_int8(const LinearWeight& reader, std::int64_t n_rows,
                                    LinearEpilogue& epilogue) {
  epilogue.y_quant = reader.activation_quant();
  epilogue.int8_scales = empty({n_rows});
  return LinearInput::int8(arena_.make(DType::kI8, {n_rows, int8_columns(reader.n_in())}),
                           epilogue.int8_scales);
}

Activations ExecContext::linear(const LinearWeight& w, const LinearInput& x, Activation activation) {
  LinearEpilogue epilogue{.activation = activation, .residual = {}};
  if (!writes_int8(w)) {
    TensorView y = empty({x.rows.dim(0), w.n_out()});
    linear_into(w, x, y, epilogue);
    return Activations(y);
  }
  TRIPTYCH_CHECK(w.reader()->n_in() == w.n_out(), "[linear] {} outputs for {} inputs", w.n_out(),
                 w.reader()->n_in());
  check_input("linear", w, x);
  LinearInput y = empty_int8(*w.reader(), x.rows.dim(0), epilogue);
  const LinearInput input = input_for(w, x);
  in_pieces(x.rows.dim(0), flop_per_row(w), [&](std::int64_t begin, std::int64_t end) {
    TensorView part = y.rows.rows(begin, end);
    if (end > begin) backend_.linear(w, rows_of(input, begin, end), rows_of(epilogue, begin, end), part);
  });
  return Activations(y);
}

void ExecContext::linear_into(const LinearWeight& w, const LinearInput& x, TensorView y,
                              const LinearEpilogue& epilogue) {
  check_input("linear", w, x);
  check_rows("linear", y, w.n_out());
  TRIPTYCH_CHECK(x.rows.dim(0) == y.dim(0), "[linear] x {} and y {}", shape_of(x.rows), shape_of(y));
  if (epilogue.residual.data() != nullptr) check_same("linear residual", epilogue.residual, y);
  if (w.takes_pixels()) patch_rows_ = {patch_rows_.n_rows + x.rows.dim(0), w.n_in()};
  const LinearInput input = input_for(w, x);
  show_input(w, input.rows);
  const Bracket bracket(observer_, "linear");
  if (x.rows.dim(0) == 0) return;
  if (w.is_partial()) return partial_linear(w, input, epilogue, y);
  in_pieces(y.dim(0), flop_per_row(w), [&](std::int64_t begin, std::int64_t end) {
    TensorView part = y.rows(begin, end);
    backend_.linear(w, rows_of(input, begin, end), rows_of(epilogue, begin, end), part);
  });
}

// Every device adds its product to the sum, so activation and residual wait until the sum is there.
void ExecContext::partial_linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
                                 TensorView y) {
  const ArenaScope scratch(arena_);
  const bool has_residual = epilogue.residual.data() != nullptr;
  TensorView sum = has_residual ? empty(y.shape()) : y;  // the residual may be y
  backend_.linear(w, x, {.activation = Activation::kNone, .residual = {}, .x_quant = epilogue.x_quant}, sum);
  backend_.all_reduce(sum);
  if (epilogue.activation != Activation::kNone) backend_.activation(epilogue.activation, sum, sum);
  if (has_residual) backend_.add(sum, epilogue.residual, y);
}

TensorView ExecContext::embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids) {
  host([ids, n = w.n_rows()] { check_row_indices("embedding", ids, n); });  // they change from step to step
  TensorView y = empty({static_cast<std::int64_t>(ids.size()), w.width()});
  const Bracket bracket(observer_, "embedding");
  backend_.embedding(w, ids, y);
  return y;
}

TensorView ExecContext::attention(const AttentionArgs& args) {
  check_heads("attention", args.q);
  check_heads("attention", args.k);
  check_same("attention", args.k, args.v);
  const std::int64_t h = args.q.dim(1);
  const std::int64_t hkv = args.k.dim(1);
  const std::int64_t dh = args.q.dim(2);
  TRIPTYCH_CHECK(args.k.dim(2) == dh && hkv > 0 && h % hkv == 0, "[attention] q {} and k {}",
                 shape_of(args.q), shape_of(args.k));
  check_segments("attention", args.cu_q, args.q.dim(0));
  check_segments("attention", args.cu_k, args.k.dim(0));
  TRIPTYCH_CHECK(args.cu_q.size() == args.cu_k.size(), "[attention] {} query and {} key segments",
                 args.cu_q.size() - 1, args.cu_k.size() - 1);
  if (observer_ != nullptr) observer_->on_attention(args);
  TensorView y = empty({args.q.dim(0), h, dh});
  const Bracket bracket(observer_, "attention");
  if (pauses_ != nullptr && !args.causal) {
    attention_in_pieces(args, y);
  } else {
    backend_.attention(args, y);
  }
  return y.reshape({y.dim(0), h * dh});
}

// Whole segments as far as they go; a longer one by its queries.
void ExecContext::attention_in_pieces(const AttentionArgs& args, const TensorView& y) {
  const double flop_per_pair = 4.0 * static_cast<double>(args.q.dim(1)) * static_cast<double>(args.q.dim(2));
  const auto flop_of = [&](std::size_t i) {
    return flop_per_pair * static_cast<double>(args.cu_q[i + 1] - args.cu_q[i]) *
           static_cast<double>(args.cu_k[i + 1] - args.cu_k[i]);
  };
  const ArenaScope scratch(arena_);
  const auto cu_q = arena_.make_span<std::int32_t>(args.cu_q.size());
  const auto cu_k = arena_.make_span<std::int32_t>(args.cu_k.size());
  // Queries [begin, end) of the segments [first, last).
  const auto run = [&](std::size_t first, std::size_t last, std::int64_t begin, std::int64_t end) {
    const std::size_t n = last - first;
    for (std::size_t i = 0; i <= n; ++i) {
      const auto at = std::clamp<std::int64_t>(args.cu_q[first + i], begin, end);
      cu_q[i] = static_cast<std::int32_t>(at - begin);
      cu_k[i] = args.cu_k[first + i] - args.cu_k[first];
    }
    AttentionArgs part = args;
    part.q = args.q.rows(begin, end);
    part.k = args.k.rows(args.cu_k[first], args.cu_k[last]);
    part.v = args.v.rows(args.cu_k[first], args.cu_k[last]);
    part.cu_q = cu_q.first(n + 1);
    part.cu_k = cu_k.first(n + 1);
    TensorView out = y.rows(begin, end);
    backend_.attention(part, out);
  };
  for (std::size_t i = 0; i + 1 < args.cu_q.size();) {
    const double most = pauses_->piece_flop();
    double flop = flop_of(i);
    if (flop > most) {
      const std::int64_t first = args.cu_q[i];
      const std::int64_t n = args.cu_q[i + 1] - first;
      in_pieces(n, flop / static_cast<double>(n),
                [&](std::int64_t begin, std::int64_t end) { run(i, i + 1, first + begin, first + end); });
      ++i;
      continue;
    }
    std::size_t last = i + 1;
    while (last + 1 < args.cu_q.size() && flop + flop_of(last) <= most) flop += flop_of(last++);
    run(i, last, args.cu_q[i], args.cu_q[last]);
    pauses_->pause(flop);
    i = last;
  }
}

void ExecContext::kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                            std::span<const std::int32_t> slots) {
  const KvGeometry& g = cache.geometry();
  check_heads("kv_append", k);
  check_same("kv_append", k, v);
  TRIPTYCH_CHECK(layer >= 0 && layer < g.n_layers && k.dim(1) == g.n_kv_heads && k.dim(2) == g.head_dim,
                 "[kv_append] layer {} k {} does not fit a cache of {} layers, {} heads of {}", layer,
                 shape_of(k), g.n_layers, g.n_kv_heads, g.head_dim);
  TRIPTYCH_CHECK(static_cast<std::int64_t>(slots.size()) == k.dim(0), "[kv_append] {} slots for {} rows",
                 slots.size(), k.dim(0));
  check_row_indices("kv_append", slots, static_cast<std::int64_t>(g.n_pages) * g.page_tokens);
  const Bracket bracket(observer_, "cache");
  backend_.kv_append(cache, layer, k, v, slots);
}

TensorView ExecContext::paged_attention(const KvCache& cache, int layer,
                                        std::span<const KvSequence> sequences, const CacheAttention& how,
                                        const TensorView& q) {
  const KvGeometry& g = cache.geometry();
  check_heads("paged_attention", q);
  TRIPTYCH_CHECK(layer >= 0 && layer < g.n_layers && q.dim(2) == g.head_dim && q.dim(1) % g.n_kv_heads == 0,
                 "[paged_attention] q {} does not fit a cache of {} heads of {}", shape_of(q), g.n_kv_heads,
                 g.head_dim);
  TRIPTYCH_CHECK(how.window >= 0, "[paged_attention] a window of {} tokens", how.window);
  for (const KvSequence& s : sequences) {
    TRIPTYCH_CHECK(
        s.first_row >= 0 && s.n_rows >= 0 && s.first_row + s.n_rows <= q.dim(0) && s.n_context >= s.n_rows,
        "[paged_attention] sequence of rows {}+{} with {} in the cache", s.first_row, s.n_rows, s.n_context);
    TRIPTYCH_CHECK(static_cast<std::int64_t>(s.pages.size()) * g.page_tokens >= s.n_context,
                   "[paged_attention] {} pages for {} tokens", s.pages.size(), s.n_context);
    check_row_indices("paged_attention", s.pages, g.n_pages);
  }
  if (observer_ != nullptr) observer_->on_paged_attention(cache, sequences, how, q);
  if (cache_listener_ != nullptr)
    cache_listener_->on_cache_attention(backend_, cache, layer, sequences, how, q);
  TensorView y = empty({q.dim(0), q.dim(1), q.dim(2)});
  const Bracket bracket(observer_, "attention");
  backend_.paged_attention(cache, layer, sequences, how, q, y);
  return y.reshape({y.dim(0), q.dim(1) * q.dim(2)});
}

TensorView ExecContext::layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                                   float eps) {
  check_norm("layer_norm", x, weight);
  check_norm("layer_norm", x, bias);
  TensorView y = empty(x.shape());
  const Bracket bracket(observer_, "norm");
  backend_.layer_norm(x, weight, bias, eps, y);
  return y;
}

void ExecContext::layer_norm_inplace(TensorView x, const TensorView& weight, const TensorView& bias,
                                     float eps) {
  check_norm("layer_norm", x, weight);
  check_norm("layer_norm", x, bias);
  const Bracket bracket(observer_, "norm");
  backend_.layer_norm(x, weight, bias, eps, x);
}

TensorView ExecContext::rms_norm(const TensorView& x, const TensorView& weight, float eps) {
  check_norm("rms_norm", x, weight);
  TensorView y = empty(x.shape());
  const Bracket bracket(observer_, "norm");
  backend_.rms_norm(x, weight, eps, y);
  return y;
}

void ExecContext::rms_norm_inplace(TensorView x, const TensorView& weight, float eps) {
  check_norm("rms_norm", x, weight);
  const Bracket bracket(observer_, "norm");
  backend_.rms_norm(x, weight, eps, x);
}

void ExecContext::rope(TensorView x, const TensorView& cos, const TensorView& sin) {
  check_heads("rope", x);
  check_same("rope", cos, sin);
  check_rows("rope", cos, -1);
  TRIPTYCH_CHECK(cos.dim(0) == x.dim(0) && 2 * cos.dim(1) <= x.dim(2), "[rope] x {} with angles {}",
                 shape_of(x), shape_of(cos));
  const Bracket bracket(observer_, "rope");
  backend_.rope(x, cos, sin);
}

void ExecContext::activation(Activation kind, TensorView x) {
  check_rows("activation", x, -1);
  const Bracket bracket(observer_, "activation");
  backend_.activation(kind, x, x);
}

TensorView ExecContext::gated_activation(Activation kind, const TensorView& gate_up) {
  check_rows("gated_activation", gate_up, -1);
  TRIPTYCH_CHECK(gate_up.dim(1) % 2 == 0, "[gated_activation] odd width {}", shape_of(gate_up));
  TensorView y = empty({gate_up.dim(0), gate_up.dim(1) / 2});
  const Bracket bracket(observer_, "activation");
  backend_.gated_activation(kind, gate_up, y);
  return y;
}

Activations ExecContext::gated_linear(Activation kind, const LinearWeight& gate_up, const LinearInput& x) {
  check_input("gated_linear", gate_up, x);
  TRIPTYCH_CHECK(gate_up.n_out() % 2 == 0 && !gate_up.is_partial(),
                 "[gated_linear] of {} rows{}: both halves must be whole", gate_up.n_out(),
                 gate_up.is_partial() ? ", partial" : "");
  if (writes_int8(gate_up)) {
    TRIPTYCH_CHECK(2 * gate_up.reader()->n_in() == gate_up.n_out(), "[gated_linear] {} outputs for {} inputs",
                   gate_up.n_out(), gate_up.reader()->n_in());
    const Arena::Mark before = arena_.mark();
    LinearEpilogue epilogue{.activation = kind, .residual = {}};
    LinearInput y = empty_int8(*gate_up.reader(), x.rows.dim(0), epilogue);
    if (gated_in_pieces(gate_up, input_for(gate_up, x), epilogue, y.rows)) return Activations(y);
    arena_.rewind(before);
  }
  TensorView y = empty({x.rows.dim(0), gate_up.n_out() / 2});
  const LinearInput input = input_for(gate_up, x);
  show_input(gate_up, input.rows);
  TensorView both;
  {
    const Bracket bracket(observer_, "linear");
    if (gated_in_pieces(gate_up, input, {.activation = kind, .residual = {}}, y)) return Activations(y);
    both = empty({x.rows.dim(0), gate_up.n_out()});
    in_pieces(x.rows.dim(0), flop_per_row(gate_up), [&](std::int64_t begin, std::int64_t end) {
      TensorView part = both.rows(begin, end);
      backend_.linear(gate_up, rows_of(input, begin, end), {}, part);
    });
  }
  const Bracket bracket(observer_, "activation");
  backend_.gated_activation(kind, both, y);
  return Activations(y);
}

// False, and y untouched, where the backend gains nothing by it: it says so at the first piece.
bool ExecContext::gated_in_pieces(const LinearWeight& gate_up, const LinearInput& x,
                                  const LinearEpilogue& epilogue, const TensorView& y) {
  bool gains = true;
  if (y.dim(0) == 0) return gains;
  in_pieces(y.dim(0), flop_per_row(gate_up), [&](std::int64_t begin, std::int64_t end) {
    TensorView part = y.rows(begin, end);
    if (gains)
      gains = backend_.gated_linear(gate_up, rows_of(x, begin, end), rows_of(epilogue, begin, end), part);
  });
  return gains;
}

TensorView ExecContext::add(const TensorView& a, const TensorView& b) {
  check_same("add", a, b);
  TensorView y = empty(a.shape());
  const Bracket bracket(observer_, "add");
  backend_.add(a, b, y);
  return y;
}

void ExecContext::add_inplace(TensorView a, const TensorView& b) {
  check_same("add", a, b);
  const Bracket bracket(observer_, "add");
  backend_.add(a, b, a);
}

void ExecContext::scale_rows(TensorView x, std::span<const float> factors) {
  check_f32("scale_rows", x);
  TRIPTYCH_CHECK(static_cast<std::int64_t>(factors.size()) == x.dim(0), "[scale_rows] {} factors for {}",
                 factors.size(), shape_of(x));
  const Bracket bracket(observer_, "scale");
  backend_.scale_rows(x, factors);
}

TensorView ExecContext::gather_rows(const TensorView& src, std::span<const std::int32_t> rows) {
  check_rows("gather_rows", src, -1);
  check_row_indices("gather_rows", rows, src.dim(0));
  TensorView y = empty({static_cast<std::int64_t>(rows.size()), src.dim(1)});
  const Bracket bracket(observer_, "rows");
  backend_.gather_rows(src, rows, y);
  return y;
}

void ExecContext::scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView dst) {
  check_rows("scatter_rows", src, -1);
  check_rows("scatter_rows", dst, src.dim(1));
  TRIPTYCH_CHECK(static_cast<std::int64_t>(rows.size()) == src.dim(0), "[scatter_rows] {} indices for {}",
                 rows.size(), shape_of(src));
  check_row_indices("scatter_rows", rows, dst.dim(0));
  const Bracket bracket(observer_, "rows");
  backend_.scatter_rows(src, rows, dst);
}

void ExecContext::add_rows(const TensorView& x, std::span<const std::int32_t> rows, TensorView h) {
  const ArenaScope scratch(arena_);
  const TensorView sum = gather_rows(h, rows);
  add_inplace(sum, x);
  scatter_rows(sum, rows, h);
}

TensorView ExecContext::patchify(const TensorView& picture, int patch_size_px) {
  check_f32("patchify", picture);
  TRIPTYCH_CHECK(picture.rank() == 3 && picture.is_contiguous() && patch_size_px > 0 &&
                     picture.dim(1) >= patch_size_px && picture.dim(2) >= patch_size_px,
                 "[patchify] picture {} in patches of {}", shape_of(picture), patch_size_px);
  const std::int64_t gh = picture.dim(1) / patch_size_px;
  const std::int64_t gw = picture.dim(2) / patch_size_px;
  TensorView y = empty({gh * gw, picture.dim(0) * patch_size_px * patch_size_px});
  if (picture.dim(1) == gh * patch_size_px && picture.dim(2) == gw * patch_size_px) {
    const Bracket bracket(observer_, "patchify");
    backend_.patchify(picture, patch_size_px, y);
    return y;
  }
  const ArenaScope scratch(arena_);
  TensorView whole = empty({picture.dim(0), gh * patch_size_px, gw * patch_size_px});
  for (std::int64_t c = 0; c < picture.dim(0); ++c)
    copy(picture.row(c).rows(0, whole.dim(1)).cols(0, whole.dim(2)), whole.row(c));
  const Bracket bracket(observer_, "patchify");
  backend_.patchify(whole, patch_size_px, y);
  return y;
}

void ExecContext::copy(const TensorView& from, TensorView to) {
  check_same("copy", from, to);
  const Bracket bracket(observer_, "copy");
  backend_.copy(from, to);
}

}  // namespace triptych
