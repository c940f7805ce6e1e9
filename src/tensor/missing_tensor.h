// What is said about a tensor that a checkpoint does not have.
#pragma once

#include <string>
#include <string_view>

#include "tensor/weight_table.h"

namespace triptych {

/// "; of its 597 tensors the nearest are A, B, C": the end of a message about a name that is not there.
std::string what_is_there(const WeightTable& table, std::string_view name);

}  // namespace triptych
