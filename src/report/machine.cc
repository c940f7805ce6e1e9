#include "report/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "base/cpu_info.h"

namespace triptych {
namespace {

// "VmHWM:   123 kB" of a file of such lines; 0 when absent.
std::size_t kib_field(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string name; in >> name;) {
    if (name == field + ":") {
      std::size_t kib = 0;
      in >> kib;
      return kib * 1024;
    }
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// A number of a cgroup file; 0 for "max" or when absent.
std::size_t cgroup_number(const char* file) {
  std::ifstream in(file);
  std::size_t n = 0;
  return in >> n ? n : 0;
}

}  // namespace

std::size_t last_cache_bytes() noexcept {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(level); bytes > 0) return static_cast<std::size_t>(bytes);
#endif
  return 0;
}

MeasuredLimits measure_limits(int n_threads) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  // A quarter of the free memory is the most; a smaller buffer would measure a cache.
  const std::size_t wanted = std::clamp(4 * last_cache_bytes(), 256 * kMiB, 1024 * kMiB);
  const std::size_t most = std::max(64 * kMiB, available_memory_bytes() / 4);
  MachineProbe probe(n_threads > 0 ? n_threads : usable_cpus(), active_features(), std::min(wanted, most));
  return probe.measure();
}

double measure_cached_reads(int n_threads, std::size_t n_bytes) {
  constexpr int kRounds = 7;
  MachineProbe probe(n_threads > 0 ? n_threads : usable_cpus(), active_features(),
                     std::max(n_bytes, std::size_t{1} << 20));
  double best = 0;
  for (int i = 0; i < kRounds; ++i) best = std::max(best, probe.read_again(n_bytes).wall);
  return best;
}

std::size_t peak_memory_bytes() { return kib_field("/proc/self/status", "VmHWM"); }

void reset_peak_memory() noexcept {
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

std::size_t available_memory_bytes() {
  const std::size_t free = kib_field("/proc/meminfo", "MemAvailable");
  const std::size_t limit = cgroup_number("/sys/fs/cgroup/memory.max");
  const std::size_t used = cgroup_number("/sys/fs/cgroup/memory.current");
  if (limit == 0 || limit < used) return free;
  return free == 0 ? limit - used : std::min(free, limit - used);
}

}  // namespace triptych
