// What weights of 8 and of 4 bits share.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/runtime.h"

namespace triptych::cpu {

/// Rows of the stack; sets n_in. Throws Error(kInvalidFile / kUnsupported) naming the tensor when shapes or
/// types do not fit.
std::int64_t check_parts(const LinearSpec& spec, std::int64_t& n_in);

/// Row `index` of the stack as float32, [n_in].
void load_row(const LinearSpec& spec, std::int64_t index, float* out);

/// How panels of output columns are handed out: groups of neighbours, and rows cut, too, when there are few.
struct Division {
  std::int64_t group;  // panels
  std::int64_t n_groups;
  std::int64_t n_splits;
};
/// `most` panels of a group suit the caches.
Division divide_panels(const Runtime& runtime, std::int64_t n_panels, std::int64_t most, std::int64_t n_rows);

}  // namespace triptych::cpu
