// What this processor can do, and which instruction sets the kernels may use.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace triptych {

/// Instruction sets that kernels are written for, weakest first. On x86 each includes the ones before it.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16 };

/// Name as in TRIPTYCH_ISA: "scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16".
std::string_view to_string(Isa isa) noexcept;

/// Best set that the processor and the operating system support.
Isa detected_isa() noexcept;

/// The set in use: detected_isa(), narrowed by the environment variable TRIPTYCH_ISA (read once). Asking for
/// more than the machine has, or for an unknown name, throws Error(kInvalidArgument).
Isa active_isa();

/// Narrows (or widens back) the set in use; for tests and benchmarks. Throws when the machine lacks it.
void set_active_isa(Isa isa);

/// Processors this process may use: the affinity mask and the cgroup CPU quota (v1 and v2), at least 1.
int usable_cpus();

/// Brand string of the processor, e.g. "AMD EPYC"; "unknown" when it cannot be read.
std::string cpu_name();

}  // namespace triptych
