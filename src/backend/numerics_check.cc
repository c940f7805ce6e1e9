#include "backend/numerics_check.h"

#include <bit>

#include "base/error.h"

namespace triptych {
namespace {

// An exponent of all ones: infinity or NaN. On the bits, so that no compiler option can assume it away.
bool is_bad(float x) noexcept { return (std::bit_cast<std::uint32_t>(x) & 0x7F800000U) == 0x7F800000U; }

struct Findings {
  std::int64_t n_bad = 0;
  float first = 0;
  std::string place;  // "[2, 17]"
};

void look(const TensorView& x, const std::string& place, Findings& out) {
  if (x.rank() > 1) {
    for (std::int64_t i = 0; i < x.dim(0); ++i)
      look(x.row(i), place + (place.empty() ? "" : ", ") + std::to_string(i), out);
    return;
  }
  const float* values = x.cf32();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!is_bad(values[i])) continue;
    if (out.n_bad++ > 0) continue;
    out.first = values[i];
    out.place = fmt::format("[{}{}{}]", place, place.empty() ? "" : ", ", i);
  }
}

}  // namespace

void NumericsCheck::check(std::string_view name, const TensorView& value) {
  if (value.dtype() != DType::kF32 || value.empty()) return;
  Findings found;
  look(value, "", found);
  if (found.n_bad == 0) return;
  fail(ErrorCode::kInvalidFile, "{}{}{}: {} of {} values are not finite, the first {} at {}; {}", part_,
       part_.empty() ? "" : ": ", name, found.n_bad, value.numel(),
       (std::bit_cast<std::uint32_t>(found.first) & 0x7FFFFF) != 0
           ? "nan"
           : (found.first > 0 ? "infinity" : "-infinity"),
       found.place,
       last_finite_.empty() ? "nothing came before"
                            : fmt::format("everything up to {} was finite", last_finite_));
}

void NumericsCheck::on_tap(std::string_view name, const TensorView& value) {
  check(name, value);
  last_finite_ = name;
  n_since_ = 0;
  if (next_ != nullptr && next_->wants_taps()) next_->on_tap(name, value);
}

void NumericsCheck::on_linear(const LinearWeight& weight, const TensorView& x) {
  ++n_since_;
  check(last_finite_.empty() ? fmt::format("input {} of product {} [{} x {}]", to_string(x.shape()), n_since_,
                                           weight.n_out(), weight.n_in())
                             : fmt::format("input {} of product {} [{} x {}] after {}", to_string(x.shape()),
                                           n_since_, weight.n_out(), weight.n_in(), last_finite_),
        x);
  if (next_ != nullptr) next_->on_linear(weight, x);
}

void NumericsCheck::on_attention(const AttentionArgs& args) {
  if (next_ != nullptr) next_->on_attention(args);
}

void NumericsCheck::restart(ExecObserver* next, std::string_view part) {
  next_ = next;
  part_ = part;
  last_finite_.clear();
  n_since_ = 0;
}

}  // namespace triptych
