// Replays of an allocation trace as a table for people.
#pragma once

#include <string>
#include <vector>

#include "benchmark/memory_replay.h"

namespace triptych {

/// One row an allocator; the first is the one that others are compared with, the last the pool, whose
/// fragmentation and saving are set beside their goals. Begins with an empty line and `title`.
std::string replay_table(const std::string& title, const std::vector<ReplayResult>& results);

}  // namespace triptych
