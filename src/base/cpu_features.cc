// Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, CPUID (volume 2) and XCR0 (volume 1,
// chapter 13); Linux, Documentation/arch/arm64/elf_hwcaps.rst and Documentation/arch/x86/xstate.rst.
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace triptych {
namespace {

using enum CpuFeature;

constexpr std::pair<Isa, std::string_view> kPresetNames[] = {{Isa::kScalar, "scalar"},
                                                             {Isa::kNeon, "neon"},
                                                             {Isa::kDotprod, "dotprod"},
                                                             {Isa::kI8mm, "i8mm"},
                                                             {Isa::kAvx2, "avx2"},
                                                             {Isa::kAvx512, "avx512"},
                                                             {Isa::kAvx512Vnni, "avx512_vnni"},
                                                             {Isa::kAvx512Bf16, "avx512_bf16"},
                                                             {Isa::kAmxInt8, "amx_int8"},
                                                             {Isa::kAmxBf16, "amx_bf16"}};

constexpr std::pair<CpuFeature, std::string_view> kFeatureNames[] = {{kSse42, "sse4_2"},
                                                                     {kAvx2, "avx2"},
                                                                     {kFma, "fma"},
                                                                     {kF16c, "f16c"},
                                                                     {kAvx512Core, "avx512"},
                                                                     {kAvx512Vnni, "avx512_vnni"},
                                                                     {kAvx512Vbmi, "avx512_vbmi"},
                                                                     {kAvx512Bf16, "avx512_bf16"},
                                                                     {kAvxVnni, "avx_vnni"},
                                                                     {kAmxInt8, "amx_int8"},
                                                                     {kAmxBf16, "amx_bf16"},
                                                                     {kNeon, "neon"},
                                                                     {kArmv82, "armv8.2"},
                                                                     {kDotprod, "dotprod"},
                                                                     {kI8mm, "i8mm"},
                                                                     {kArmBf16, "bf16"},
                                                                     {kSve, "sve"},
                                                                     {kSve2, "sve2"}};

#if defined(__x86_64__)
constexpr Isa kKnown[] = {Isa::kScalar,     Isa::kAvx2,    Isa::kAvx512, Isa::kAvx512Vnni,
                          Isa::kAvx512Bf16, Isa::kAmxInt8, Isa::kAmxBf16};
#elif defined(__aarch64__)
constexpr Isa kKnown[] = {Isa::kScalar, Isa::kNeon, Isa::kDotprod, Isa::kI8mm};
#else
constexpr Isa kKnown[] = {Isa::kScalar};
#endif

constexpr bool has_bits(std::uint64_t word, std::initializer_list<int> bits) noexcept {
  return std::all_of(bits.begin(), bits.end(), [word](int i) { return (word >> i & 1U) != 0; });
}

CpuFeatures detect() noexcept {
#if defined(__x86_64__)
  CpuidWords words;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) words.leaf1_ecx = ecx;
  unsigned n_subleaves = 0;
  if (__get_cpuid_count(7, 0, &n_subleaves, &ebx, &ecx, &edx) != 0) {
    words.leaf7_ebx = ebx;
    words.leaf7_ecx = ecx;
    words.leaf7_edx = edx;
    if (n_subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  }
  constexpr int kOsXsave = 27;
  if (has_bits(words.leaf1_ecx, {kOsXsave})) {
    std::uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = std::uint64_t{high} << 32 | low;
  }
  return features_from_cpuid(words);
#elif defined(__aarch64__)
  return features_from_hwcaps(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#else
  return {};
#endif
}

// Linux gives a process the registers of XCR0 bit 18 for good, in all its threads and children, when it asks.
bool ask_for_tiles() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  static const bool granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

constexpr std::uint64_t kChosen = std::uint64_t{1} << 63;  // beside the flags: they were chosen
std::atomic<std::uint64_t> g_active{0};

}  // namespace

CpuFeatures features_from_cpuid(const CpuidWords& w) noexcept {
  CpuFeatures out;
  const auto add = [&out](CpuFeature feature, bool there) {
    if (there) out = out | CpuFeatures{feature};
  };
  add(kSse42, has_bits(w.leaf1_ecx, {20}));
  if (!has_bits(w.xcr0, {1, 2})) return out;  // SSE and AVX registers
  add(kAvx2, has_bits(w.leaf1_ecx, {28}) && has_bits(w.leaf7_ebx, {3, 5, 8}));
  add(kFma, has_bits(w.leaf1_ecx, {12}));
  add(kF16c, has_bits(w.leaf1_ecx, {29}));
  add(kAvxVnni, has_bits(w.leaf7_1_eax, {4}));
  if (has_bits(w.xcr0, {5, 6, 7})) {  // masks, and the registers of 512 bits
    add(kAvx512Core, has_bits(w.leaf7_ebx, {16, 17, 30, 31}));
    add(kAvx512Vnni, has_bits(w.leaf7_ecx, {11}));
    add(kAvx512Vbmi, has_bits(w.leaf7_ecx, {1}));
    add(kAvx512Bf16, has_bits(w.leaf7_1_eax, {5}));
  }
  if (has_bits(w.xcr0, {17, 18})) {  // tiles and their configuration
    add(kAmxInt8, has_bits(w.leaf7_edx, {24, 25}));
    add(kAmxBf16, has_bits(w.leaf7_edx, {24, 22}));
  }
  return out;
}

CpuFeatures features_from_hwcaps(std::uint64_t hwcap, std::uint64_t hwcap2) noexcept {
#if defined(__aarch64__)
  static_assert(HWCAP_ASIMD == 1UL << 1 && HWCAP_CRC32 == 1UL << 7 && HWCAP_ATOMICS == 1UL << 8 &&
                HWCAP_ASIMDRDM == 1UL << 12 && HWCAP_ASIMDDP == 1UL << 20 && HWCAP_SVE == 1UL << 22 &&
                HWCAP2_SVE2 == 1UL << 1 && HWCAP2_I8MM == 1UL << 13 && HWCAP2_BF16 == 1UL << 14);
#endif
  CpuFeatures out;
  const auto add = [&out](CpuFeature feature, bool there) {
    if (there) out = out | CpuFeatures{feature};
  };
  add(kNeon, has_bits(hwcap, {1}));
  add(kArmv82, has_bits(hwcap, {7, 8, 12}));
  add(kDotprod, has_bits(hwcap, {20}));
  add(kSve, has_bits(hwcap, {22}));
  add(kSve2, has_bits(hwcap2, {1}));
  add(kI8mm, has_bits(hwcap2, {13}));
  add(kArmBf16, has_bits(hwcap2, {14}));
  return out;
}

CpuFeatures detected_features() noexcept {
  static const CpuFeatures features = detect();
  return features;
}

CpuFeatures granted_features(CpuFeatures wanted) noexcept {
  const CpuFeatures out = wanted & detected_features();
  return (out & kTileFeatures).empty() || ask_for_tiles() ? out : out - kTileFeatures;
}

CpuFeatures choose_features(std::string_view preset, CpuFeatures detected, FunctionRef<bool()> ask) {
  if (preset.empty())
    return (detected & kTileFeatures).empty() || ask() ? detected : detected - kTileFeatures;
  std::string names;
  for (const Isa isa : kKnown) {
    if (to_string(isa) != preset) {
      names.append(names.empty() ? "" : ", ").append(to_string(isa));
      continue;
    }
    const CpuFeatures wanted = isa;
    if (!detected.has_all(wanted))
      fail(ErrorCode::kInvalidArgument, "TRIPTYCH_ISA={}: this machine lacks {}", preset,
           to_string(wanted - detected));
    if (!(wanted & kTileFeatures).empty() && !ask())
      fail(ErrorCode::kInvalidArgument,
           "TRIPTYCH_ISA={}: the system refuses this process the tile registers of AMX", preset);
    return wanted;
  }
  fail(ErrorCode::kInvalidArgument, "TRIPTYCH_ISA={}: expected one of {}", preset, names);
}

CpuFeatures active_features() {
  std::uint64_t bits = g_active.load(std::memory_order_acquire);
  if (bits == 0) {
    const char* preset = std::getenv("TRIPTYCH_ISA");
    bits =
        choose_features(preset != nullptr ? preset : "", detected_features(), ask_for_tiles).bits() | kChosen;
    g_active.store(bits, std::memory_order_release);
  }
  return CpuFeatures::from_bits(bits & ~kChosen);
}

void set_active_features(CpuFeatures features) {
  if (const CpuFeatures lacking = features - granted_features(features); !lacking.empty())
    fail(ErrorCode::kInvalidArgument, "instruction sets {}: this machine lacks {}", to_string(features),
         to_string(lacking));
  g_active.store(features.bits() | kChosen, std::memory_order_release);
}

std::string to_string(CpuFeatures features) {
  std::string out;
  for (const auto& [feature, name] : kFeatureNames)
    if (features.has(feature)) out.append(out.empty() ? "" : " ").append(name);
  return out.empty() ? "none" : out;
}

std::span<const Isa> known_isas() noexcept { return kKnown; }

std::string_view to_string(Isa isa) noexcept {
  for (const auto& [known, text] : kPresetNames)
    if (known == isa) return text;
  return "unknown";
}

Isa preset_of(CpuFeatures features) noexcept {
  Isa out = Isa::kScalar;
  for (const Isa isa : kKnown)
    if (features.has_all(isa)) out = isa;
  return out;
}

bool has_isa(Isa isa) noexcept { return granted_features(isa).has_all(isa); }
Isa detected_isa() noexcept { return preset_of(detected_features()); }
Isa active_isa() { return preset_of(active_features()); }

std::vector<Isa> usable_isas() {
  std::vector<Isa> out;
  for (const Isa isa : kKnown)
    if (active_features().has_all(isa)) out.push_back(isa);
  return out;
}

}  // namespace triptych
