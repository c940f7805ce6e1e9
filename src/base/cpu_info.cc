#include "base/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace triptych {
namespace {

// Quota of a cgroup as processors, or 0 when there is none.
double cgroup_cpus() {
  std::string path;
  {
    std::ifstream in("/proc/self/cgroup");
    for (std::string line; std::getline(in, line);)
      if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  double best = 0;
  // v2: every ancestor may limit.
  for (std::string p = path;; p = p.substr(0, p.find_last_of('/'))) {
    std::ifstream in("/sys/fs/cgroup" + p + "/cpu.max");
    std::string quota;
    double period = 0;
    if (in >> quota >> period && quota != "max" && period > 0) {
      const double cpus = std::strtod(quota.c_str(), nullptr) / period;
      if (cpus > 0 && (best == 0 || cpus < best)) best = cpus;
    }
    if (p.empty() || p == "/") break;
  }
  double quota = 0;
  double period = 0;
  std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (q >> quota && p >> period && quota > 0 && period > 0 && (best == 0 || quota / period < best))
    best = quota / period;
  return best;
}

}  // namespace

int usable_cpus() {
  int cpus = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  const double quota = cgroup_cpus();
  if (quota > 0) cpus = std::min(cpus, std::max(1, static_cast<int>(std::ceil(quota - 0.01))));
  return cpus;
}

std::string cpu_name(std::istream& cpuinfo) {
  std::string implementer;
  std::string part;
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0) return value;
    if (line.rfind("CPU implementer", 0) == 0)
      implementer = std::move(value);
    else if (line.rfind("CPU part", 0) == 0)
      part = std::move(value);
  }
  if (implementer.empty() || part.empty()) return "unknown";
  return "ARM implementer " + implementer + " part " + part;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  return cpu_name(in);
}

}  // namespace triptych
