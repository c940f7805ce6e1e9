#include "engine/encode_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/profile.h"

namespace triptych {

std::int64_t patches_of(const Shape& pixels, std::int64_t patch_values) {
  if (pixels.rank() < 3) return pixels.rank() == 2 ? pixels.dim(0) : 0;
  const std::int64_t side = std::lround(std::sqrt(static_cast<double>(patch_values / pixels.dim(-3))));
  if (side < 1) return 0;
  std::int64_t out = (pixels.dim(-2) / side) * (pixels.dim(-1) / side);
  for (int i = 0; i + 3 < pixels.rank(); ++i) out *= pixels.dim(i);
  return out;
}
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A piece before anything was measured, about a millisecond of two slow cores.
constexpr double kFirstPieceFlop = 1e8;
// Pieces of a stretch: many enough to end it in time, few enough to be worth their calls.
constexpr double kPiecesPerStretch = 4;
constexpr double kMinPieceMs = 0.5;
// Products of bytes are ten times as fast as attention in floats, and what comes next is not known: pieces
// are sized by what was slow lately. Shares of a measurement that is worse, and of one that is better.
constexpr double kWorse = 0.5;
constexpr double kBetter = 0.02;

}  // namespace

EncodePass::EncodePass(const Model& model, Backend& backend, Arena& arena, std::vector<MediaItem>&& items,
                       ExecObserver* observer, ClockMs clock)
    : model_(model), backend_(backend), arena_(arena), observer_(observer), clock_(std::move(clock)) {
  arena_.reset();
  items_ = std::move(items);
}

void EncodePass::encode() {
  const ProfileZone zone("vision");
  ExecContext cx(backend_, arena_, observer_, observer_ == nullptr ? this : nullptr);
  rows_ = model_.encode_media(cx, items_);
  const ExecContext::PatchRows& patches = cx.patch_rows();
  patch_rows_ = {patches.n_rows, patches.n_rows};
  for (const MediaItem& item : items_)
    if (patches.n_rows > 0) patch_rows_.n_padded -= patches_of(item.pixels.shape(), patches.n_values);
  if (cx.n_block_rows() == 0) return;  // no tower
  n_padded_patches_ = cx.n_block_rows();
  for (const MediaItem& item : items_) n_padded_patches_ -= item.plan.n_patches;
}

bool EncodePass::run(double budget_ms, const std::atomic<bool>& interrupt) {
  const StepScope step(backend_, {.n_sequences = static_cast<std::int64_t>(items_.size())});
  const double start_ms = clock_();
  budget_ms_ = budget_ms;
  end_ms_ = start_ms + budget_ms;
  interrupt_ = &interrupt;
  piece_start_ms_ = start_ms;
  ++n_stretches_;
  if (!fiber_) fiber_.emplace([this](Fiber&) { encode(); });
  fiber_->resume();
  active_ms_ += clock_() - start_ms;
  return fiber_->done();
}

double EncodePass::piece_flop() const noexcept {
  if (budget_ms_ == kInfinity) return kInfinity;
  if (flop_per_ms_ <= 0) return kFirstPieceFlop;
  return flop_per_ms_ * std::max(budget_ms_ / kPiecesPerStretch, kMinPieceMs);
}

void EncodePass::pause(double flop) {
  const double now_ms = clock_();
  const double ms = now_ms - piece_start_ms_;
  if (flop > 0 && ms > 0) {
    const auto blend = [](double& mean, double value, bool worse) {
      mean = mean > 0 ? mean + (worse ? kWorse : kBetter) * (value - mean) : value;
    };
    blend(flop_per_ms_, flop / ms, flop / ms < flop_per_ms_);
    blend(piece_ms_, ms, ms > piece_ms_);
  }
  piece_start_ms_ = now_ms;
  // The next piece should end in time.
  if (now_ms + piece_ms_ < end_ms_ && !interrupt_->load(std::memory_order_relaxed)) return;
  fiber_->suspend();
  piece_start_ms_ = clock_();
}

}  // namespace triptych
