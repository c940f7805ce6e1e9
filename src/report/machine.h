// What this machine and process are, for reports.
#pragma once

#include <cstddef>

#include "backend/cpu/probe.h"
#include "backend/cpu/tuning.h"

namespace triptych {

/// Measures with `n_threads` (0: all usable processors) and the instruction set in use; about a second. Reads
/// a buffer of four times the last cache, from 256 MB to 1 GB.
MeasuredLimits measure_limits(int n_threads);
/// Bytes per second that the same threads read when each goes over its own part of `n_bytes` again and again:
/// what is possible where caches hold them. The best of several measurements.
double measure_cached_reads(int n_threads, std::size_t n_bytes);
/// Bytes of the last cache as the system states it; 0 when unknown.
std::size_t last_cache_bytes() noexcept;

/// Largest resident memory of this process so far, bytes; 0 when the system does not say.
std::size_t peak_memory_bytes();
/// Starts that count anew where the system allows it.
void reset_peak_memory() noexcept;
/// Memory this process may still take, bytes (the cgroup's limit included); 0 when unknown.
std::size_t available_memory_bytes();

}  // namespace triptych
