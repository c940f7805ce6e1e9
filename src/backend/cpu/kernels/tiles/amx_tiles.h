// The tiles of tile_config.h as the instructions of AMX; for files compiled with them. Written out: the
// intrinsics of GCC 12 do not tell the compiler which memory LDTILECFG and TILELOADD read, so that stores
// before them may be dropped or moved behind them. Nobody allocates the registers, which therefore are
// numbers, and no compiler uses them by itself.
#pragma once

#include "backend/cpu/kernels/tiles/tile_config.h"

namespace triptych::kernels {
namespace {

#define TRIPTYCH_TILE __attribute__((always_inline)) static inline

struct AmxTiles {
  TRIPTYCH_TILE void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  TRIPTYCH_TILE void save(TileConfig& config) {
    __asm__ volatile("sttilecfg %0" : "=m"(config) : : "memory");
  }
  TRIPTYCH_TILE void release() { __asm__ volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  TRIPTYCH_TILE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile) : "memory");
  }
  template <int kTile>
  TRIPTYCH_TILE void load(const void* data, ptrdiff_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  TRIPTYCH_TILE void store(void* data, ptrdiff_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(data), "r"(stride), "i"(kTile) : "memory");
  }
  // The assembler wants B, A, C.
  template <int kC, int kA, int kB>
  TRIPTYCH_TILE void dot_su() {
    static_assert(kC != kA && kC != kB && kA != kB);
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
  }
  template <int kC, int kA, int kB>
  TRIPTYCH_TILE void dot_us() {
    static_assert(kC != kA && kC != kB && kA != kB);
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
  }
  template <int kC, int kA, int kB>
  TRIPTYCH_TILE void dot_bf16() {
    static_assert(kC != kA && kC != kB && kA != kB);
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB) : "memory");
  }
};

#undef TRIPTYCH_TILE

}  // namespace
}  // namespace triptych::kernels
