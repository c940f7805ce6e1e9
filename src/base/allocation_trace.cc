#include "base/allocation_trace.h"

#include <limits>

#include "base/error.h"

namespace triptych {
namespace {

thread_local AllocationKind t_kind = AllocationKind::kBuffer;

}  // namespace

namespace detail {
std::atomic<AllocationRecorder*> g_recorder{nullptr};
}

AllocationRecorder::AllocationRecorder() {
  AllocationRecorder* none = nullptr;
  TRIPTYCH_CHECK(detail::g_recorder.compare_exchange_strong(none, this), "two allocation recorders at once");
}

AllocationRecorder::~AllocationRecorder() { detail::g_recorder.store(nullptr); }

std::vector<AllocationEvent> AllocationRecorder::events() const {
  const std::scoped_lock lock(mutex_);
  return events_;
}

void AllocationRecorder::allocated(AllocationKind kind, std::uintptr_t address, std::size_t size_bytes) {
  const std::scoped_lock lock(mutex_);
  TRIPTYCH_CHECK(n_blocks_ < std::numeric_limits<std::uint32_t>::max(), "too many allocations for a record");
  auto& live = live_[static_cast<int>(kind)];
  TRIPTYCH_CHECK(live.emplace(address, n_blocks_).second, "a block was allocated twice");
  events_.push_back({n_blocks_++, kind, size_bytes == 0 ? 1 : size_bytes});
}

void AllocationRecorder::released(AllocationKind kind, std::uintptr_t first, std::uintptr_t last) {
  const std::scoped_lock lock(mutex_);
  auto& live = live_[static_cast<int>(kind)];
  for (auto it = live.lower_bound(first); it != live.end() && it->first <= last; it = live.erase(it))
    events_.push_back({it->second, kind, 0});
}

AllocationScope::AllocationScope(AllocationKind kind) noexcept : outer_(t_kind) { t_kind = kind; }
AllocationScope::~AllocationScope() { t_kind = outer_; }
AllocationKind AllocationScope::kind() noexcept { return t_kind; }

}  // namespace triptych
