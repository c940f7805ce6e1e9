// The processor this program runs on: how many may be used, its name, and (cpu_features.h) what it can do.
#pragma once

#include <iosfwd>
#include <string>

#include "base/cpu_features.h"

namespace triptych {

/// Processors this process may use: the affinity mask and the cgroup CPU quota (v1 and v2), at least 1.
int usable_cpus();

/// Brand string of the processor, e.g. "AMD EPYC"; on ARM the board's name or "ARM implementer 0x41 part
/// 0xd0c"; "unknown" when it cannot be read.
std::string cpu_name();
/// The same from the text of /proc/cpuinfo.
std::string cpu_name(std::istream& cpuinfo);

}  // namespace triptych
