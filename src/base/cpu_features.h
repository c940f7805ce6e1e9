// Instruction-set extensions as a set of flags: what the processor has, what may be used, and the presets
// that TRIPTYCH_ISA names. Extensions are not ordered: a processor may have AVX-VNNI without AVX-512, or BF16
// without VBMI.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace triptych {

/// One extension, or several that always come together. Only what the operating system has enabled, too, is
/// ever detected.
enum class CpuFeature : std::uint8_t {
  // x86
  kSse42,
  kAvx2,  // with BMI1 and BMI2
  kFma,
  kF16c,
  kAvx512Core,  // F, BW, DQ and VL
  kAvx512Vnni,
  kAvx512Vbmi,
  kAvx512Bf16,
  kAvxVnni,
  kAmxInt8,  // with AMX-TILE; Linux grants a process the tile registers when it asks: granted_features
  kAmxBf16,
  // ARM
  kNeon,
  kArmv82,  // atomics, CRC32 and rounding multiply-adds, which code compiled for ARMv8.2 may use
  kDotprod,
  kI8mm,
  kArmBf16,
  kSve,
  kSve2,
};

/// Presets: the sets of flags that TRIPTYCH_ISA names.
enum class Isa : std::uint8_t {
  kScalar,
  kNeon,
  kDotprod,
  kI8mm,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAmxInt8,
  kAmxBf16
};

class CpuFeatures {
 public:
  constexpr CpuFeatures() noexcept = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> features) noexcept {
    for (const CpuFeature feature : features) bits_ |= bit(feature);
  }
  /// The flags of a preset.
  constexpr CpuFeatures(Isa preset) noexcept;  // NOLINT: implicit, a preset is a set of flags

  constexpr bool has(CpuFeature feature) const noexcept { return (bits_ & bit(feature)) != 0; }
  constexpr bool has_all(CpuFeatures features) const noexcept {
    return (bits_ & features.bits_) == features.bits_;
  }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr std::uint64_t bits() const noexcept { return bits_; }
  static constexpr CpuFeatures from_bits(std::uint64_t bits) noexcept {
    CpuFeatures out;
    out.bits_ = bits;
    return out;
  }

  friend constexpr CpuFeatures operator|(CpuFeatures a, CpuFeatures b) noexcept {
    return from_bits(a.bits_ | b.bits_);
  }
  friend constexpr CpuFeatures operator&(CpuFeatures a, CpuFeatures b) noexcept {
    return from_bits(a.bits_ & b.bits_);
  }
  /// Those of a that b lacks.
  friend constexpr CpuFeatures operator-(CpuFeatures a, CpuFeatures b) noexcept {
    return from_bits(a.bits_ & ~b.bits_);
  }
  friend constexpr bool operator==(CpuFeatures, CpuFeatures) noexcept = default;

 private:
  static constexpr std::uint64_t bit(CpuFeature feature) noexcept {
    return std::uint64_t{1} << static_cast<unsigned>(feature);
  }
  std::uint64_t bits_ = 0;
};

constexpr CpuFeatures::CpuFeatures(Isa preset) noexcept {
  using enum CpuFeature;
  constexpr CpuFeatures kAvx2Set = {kSse42, kAvx2, kFma, kF16c};
  constexpr CpuFeatures kAvx512Set = kAvx2Set | CpuFeatures{kAvx512Core};
  constexpr CpuFeatures kVnniSet = kAvx512Set | CpuFeatures{kAvx512Vnni};
  constexpr CpuFeatures kBf16Set = kVnniSet | CpuFeatures{kAvx512Bf16};
  constexpr CpuFeatures kDotprodSet = {kNeon, kArmv82, kDotprod};
  switch (preset) {
    case Isa::kScalar:
      break;
    case Isa::kNeon:
      *this = {kNeon};
      break;
    case Isa::kDotprod:
      *this = kDotprodSet;
      break;
    case Isa::kI8mm:
      *this = kDotprodSet | CpuFeatures{kI8mm};
      break;
    case Isa::kAvx2:
      *this = kAvx2Set;
      break;
    case Isa::kAvx512:
      *this = kAvx512Set;
      break;
    case Isa::kAvx512Vnni:
      *this = kVnniSet;
      break;
    case Isa::kAvx512Bf16:
      *this = kBf16Set;
      break;
    case Isa::kAmxInt8:
      *this = kBf16Set | CpuFeatures{kAmxInt8};
      break;
    case Isa::kAmxBf16:
      *this = kBf16Set | CpuFeatures{kAmxInt8, kAmxBf16};
      break;
  }
}

/// The words of x86's CPUID that tell of extensions, and XCR0 (0 where the system has not enabled XSAVE).
struct CpuidWords {
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0, leaf7_ecx = 0, leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;
};
CpuFeatures features_from_cpuid(const CpuidWords& words) noexcept;
/// From AT_HWCAP and AT_HWCAP2 of Linux on 64-bit ARM.
CpuFeatures features_from_hwcaps(std::uint64_t hwcap, std::uint64_t hwcap2) noexcept;

/// Those that work with the tile registers of AMX.
inline constexpr CpuFeatures kTileFeatures = {CpuFeature::kAmxInt8, CpuFeature::kAmxBf16};

/// What the processor and the operating system support. Whether this process gets the tile registers is not
/// known yet.
CpuFeatures detected_features() noexcept;
/// Those of `wanted` that the machine has and this process may use. Asks the system for the tile registers,
/// once, when `wanted` has a flag for them: the permission makes the frames of all signals larger. A refusal
/// (an older kernel, a thread with a small signal stack) is no error.
CpuFeatures granted_features(CpuFeatures wanted) noexcept;
/// What may be used: detected_features(), narrowed to the preset that the environment variable TRIPTYCH_ISA
/// names (read once), without AMX where the system refuses it. Unknown names and presets that the machine
/// lacks a flag of throw Error(kInvalidArgument).
CpuFeatures active_features();
/// The same from a preset's name (empty: none) and the machine's flags; ask_for_tiles is called when tiles
/// are among what is left.
CpuFeatures choose_features(std::string_view preset, CpuFeatures detected, FunctionRef<bool()> ask_for_tiles);
/// Narrows (or widens back) what may be used; for tests and benchmarks. Throws when the machine lacks a flag.
void set_active_features(CpuFeatures features);

/// Names of the flags, as Linux writes most of them: "sse4_2 avx2 fma"; "none" of the empty set.
std::string to_string(CpuFeatures features);

/// The presets of the kind of processor that this program is compiled for, each with the flags of those
/// before it, whatever the machine has.
std::span<const Isa> known_isas() noexcept;
/// Name as in TRIPTYCH_ISA: "scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
/// "neon", "dotprod", "i8mm".
std::string_view to_string(Isa isa) noexcept;
/// The last of known_isas() whose flags are all among `features`: what reports call the set.
Isa preset_of(CpuFeatures features) noexcept;

/// Whether the machine has all flags of a preset, and grants them.
bool has_isa(Isa isa) noexcept;
/// preset_of(detected_features()) and preset_of(active_features()).
Isa detected_isa() noexcept;
Isa active_isa();
/// The presets that active_features() allows, weakest first: what a test goes through.
std::vector<Isa> usable_isas();

}  // namespace triptych
