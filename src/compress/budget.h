// Which linear becomes what, when all together may take so many bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace triptych::compress {

/// One way to keep a linear.
struct Choice {
  double bytes = 0;
  double loss = 0;  // that it adds; losses of different linears are taken to add up
};

/// The index of the choice of each linear that makes the sum of losses least within max_bytes: a
/// multiple-choice knapsack by dynamic programming over 4096 steps of bytes, each choice rounded up, so that
/// the bound holds. Throws Error(kInvalidArgument) with the numbers when even the smallest choices take more.
std::vector<std::size_t> choose_within(const std::vector<std::vector<Choice>>& linears, double max_bytes);

}  // namespace triptych::compress
