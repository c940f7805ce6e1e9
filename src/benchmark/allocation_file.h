// Allocation traces as files: "triptych-allocations 1", then a line an event, "a BLOCK KIND BYTES" or "f
// BLOCK". Blocks are numbered from 0 in the order of their allocation; KIND is buffer, chunk, tensor or kv.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocation_trace.h"

namespace triptych {

std::string allocation_text(std::span<const AllocationEvent> events);
/// Throws Error(kInvalidFile) naming the line.
std::vector<AllocationEvent> parse_allocations(std::string_view text, const std::string& name);

/// Throw Error(kIo) as well.
void write_allocations(const std::filesystem::path& file, std::span<const AllocationEvent> events);
std::vector<AllocationEvent> read_allocations(const std::filesystem::path& file);

}  // namespace triptych
