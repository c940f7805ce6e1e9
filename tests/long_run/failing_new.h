// operator new that fails when a test wants it to.
#pragma once

#include <cstdint>

namespace triptych::test {

/// Of this thread's allocations through operator new, the one after `n_before` more throws std::bad_alloc,
/// once; below 0: none does.
void fail_allocation_after(std::int64_t n_before) noexcept;
/// Whether one was to fail and has not yet; none does from now on.
bool take_back_failure() noexcept;

}  // namespace triptych::test
