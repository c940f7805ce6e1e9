// What a fuzz target lets through: Error is the right answer to bad bytes, unless it says that this program
// is at fault. Every other exception, and every fault that a sanitizer sees, ends the run.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace triptych::fuzz {

/// Whether the last call of only_errors ended in an Error.
inline bool last_was_refused = false;

template <typename Action>
int only_errors(Action action) {
  last_was_refused = false;
  try {
    action();
  } catch (const Error& error) {
    last_was_refused = true;
    if (error.code() == ErrorCode::kInternal) {
      std::fprintf(stderr, "a check failed: %s\n", error.what());
      std::abort();
    }
  }
  return 0;
}

/// Ends the run when a result that was accepted does not hold what it promises.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

}  // namespace triptych::fuzz
