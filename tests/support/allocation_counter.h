// Counts the memory allocations of a test program, so that a test can show that a call makes none. Include it
// in one test file or more; the counting itself is in allocation_counter.cc, linked only into programs that
// ask.
#pragma once

namespace triptych {

/// Allocations of the program so far, by all threads, through operator new (under a sanitizer: through malloc
/// as well). A test that expects no change should also show that the counter counts, with allocate_once().
long n_allocations() noexcept;

/// One allocation, freed again, that no compiler optimises away.
void allocate_once();

}  // namespace triptych
