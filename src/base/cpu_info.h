// What this processor can do, and which instruction sets the kernels may use.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace triptych {

/// Instruction sets that kernels are written for. Those of one kind of processor are ordered, weakest first,
/// and each includes the ones before it; the sets of x86 come after those of ARM, so that "at least AVX2" is
/// false there.
enum class Isa { kScalar, kNeon, kDotprod, kI8mm, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16 };

/// The sets of the kind of processor that this program is compiled for, weakest first, whatever the machine
/// has.
std::span<const Isa> known_isas() noexcept;

/// Name as in TRIPTYCH_ISA: "scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "neon", "dotprod",
/// "i8mm".
std::string_view to_string(Isa isa) noexcept;

/// Whether the processor and the operating system support a set.
bool has_isa(Isa isa) noexcept;

/// Best set that the processor and the operating system support.
Isa detected_isa() noexcept;

/// The set in use: detected_isa(), narrowed by the environment variable TRIPTYCH_ISA (read once). Asking for
/// more than the machine has, or for an unknown name, throws Error(kInvalidArgument).
Isa active_isa();

/// Narrows (or widens back) the set in use; for tests and benchmarks. Throws when the machine lacks it.
void set_active_isa(Isa isa);

/// Processors this process may use: the affinity mask and the cgroup CPU quota (v1 and v2), at least 1.
int usable_cpus();

/// Brand string of the processor, e.g. "AMD EPYC"; on ARM the board's name or "ARM implementer 0x41 part
/// 0xd0c"; "unknown" when it cannot be read.
std::string cpu_name();
/// The same from the text of /proc/cpuinfo.
std::string cpu_name(std::istream& cpuinfo);

}  // namespace triptych
