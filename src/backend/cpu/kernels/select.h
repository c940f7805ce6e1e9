// Choice of an implementation: a list in order of preference, the first that the instruction set allows wins.
#pragma once

#include <initializer_list>

#include "base/cpu_info.h"
#include "base/error.h"

namespace triptych::kernels {

template <typename Kernels>
struct Candidate {
  Isa needs;
  const Kernels* kernels;
};

/// The last candidate must need kScalar only.
template <typename Kernels>
const Kernels& first_supported(Isa isa, std::initializer_list<Candidate<Kernels>> best_first) {
  for (const Candidate<Kernels>& candidate : best_first)
    if (candidate.needs <= isa) return *candidate.kernels;
  TRIPTYCH_CHECK(false, "no implementation");
  return *best_first.begin()->kernels;
}

}  // namespace triptych::kernels
