#include "base/flush_denormals.h"

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace triptych {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kBits = 0x8040;  // MXCSR: FTZ, DAZ
std::uint32_t read_mode() noexcept { return _mm_getcsr(); }
void write_mode(std::uint32_t mode) noexcept { _mm_setcsr(mode); }
#elif defined(__aarch64__)
constexpr std::uint64_t kBits = std::uint64_t{1} << 24;  // FPCR: FZ, both ways
std::uint64_t read_mode() noexcept {
  std::uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void write_mode(std::uint64_t mode) noexcept { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
constexpr unsigned kBits = 0;
unsigned read_mode() noexcept { return 0; }
void write_mode(unsigned) noexcept {}
#endif

}  // namespace

bool flushes_denormals() noexcept { return kBits != 0 && (read_mode() & kBits) == kBits; }

void set_flush_denormals(bool on) noexcept {
  const auto before = read_mode();
  const auto after = on ? before | kBits : before & ~kBits;
  if (after != before) write_mode(after);
}

}  // namespace triptych
