#include "base/cpu_info.h"

#include <sched.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::pair<Isa, std::string_view> kNames[] = {{Isa::kScalar, "scalar"},
                                                       {Isa::kNeon, "neon"},
                                                       {Isa::kDotprod, "dotprod"},
                                                       {Isa::kI8mm, "i8mm"},
                                                       {Isa::kAvx2, "avx2"},
                                                       {Isa::kAvx512, "avx512"},
                                                       {Isa::kAvx512Vnni, "avx512_vnni"},
                                                       {Isa::kAvx512Bf16, "avx512_bf16"}};

#if defined(__x86_64__)
constexpr Isa kKnown[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16};
#elif defined(__aarch64__)
constexpr Isa kKnown[] = {Isa::kScalar, Isa::kNeon, Isa::kDotprod, Isa::kI8mm};
#else
constexpr Isa kKnown[] = {Isa::kScalar};
#endif

Isa detect() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("bmi")))
    return Isa::kScalar;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
    return Isa::kAvx2;
  if (!(__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))) return Isa::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512Vnni;
  return Isa::kAvx512Bf16;
#elif defined(__aarch64__)
  // Kernels for the later sets are compiled for ARMv8.2, which has atomics, CRC32 and rounding multiply-adds
  // besides.
  constexpr unsigned long kArmv82 = HWCAP_ATOMICS | HWCAP_CRC32 | HWCAP_ASIMDRDM;
  const unsigned long first = getauxval(AT_HWCAP);
  if ((first & kArmv82) != kArmv82 || (first & HWCAP_ASIMDDP) == 0) return Isa::kNeon;
  return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) == 0 ? Isa::kDotprod : Isa::kI8mm;
#else
  return Isa::kScalar;
#endif
}

Isa from_environment() {
  const char* name = std::getenv("TRIPTYCH_ISA");
  if (name == nullptr || *name == '\0') return detected_isa();
  std::string names;
  for (const Isa isa : kKnown) {
    if (to_string(isa) != name) {
      names.append(names.empty() ? "" : ", ").append(to_string(isa));
      continue;
    }
    if (!has_isa(isa))
      fail(ErrorCode::kInvalidArgument, "TRIPTYCH_ISA={}: this machine has {} at most", name,
           to_string(detected_isa()));
    return isa;
  }
  fail(ErrorCode::kInvalidArgument, "TRIPTYCH_ISA={}: expected one of {}", name, names);
}

std::atomic<int> g_active{-1};

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

std::string_view to_string(Isa isa) noexcept {
  for (const auto& [known, text] : kNames)
    if (known == isa) return text;
  return "unknown";
}

std::span<const Isa> known_isas() noexcept { return kKnown; }

bool has_isa(Isa isa) noexcept {
  return std::find(std::begin(kKnown), std::end(kKnown), isa) != std::end(kKnown) && isa <= detected_isa();
}

Isa detected_isa() noexcept {
  static const Isa isa = detect();
  return isa;
}

Isa active_isa() {
  int value = g_active.load(std::memory_order_acquire);
  if (value < 0) {
    value = static_cast<int>(from_environment());
    g_active.store(value, std::memory_order_release);
  }
  return static_cast<Isa>(value);
}

void set_active_isa(Isa isa) {
  if (!has_isa(isa))
    fail(ErrorCode::kInvalidArgument, "instruction set {} is not supported here; this machine has {} at most",
         to_string(isa), to_string(detected_isa()));
  g_active.store(static_cast<int>(isa), std::memory_order_release);
}

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
