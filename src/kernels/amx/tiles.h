// The tile instructions. The intrinsics of g++ 12 do not tell the compiler which memory they read,
// so that it may drop or move the stores that fill a tile; these do.
#pragma once

#include "kernels/fast/vec.h"

namespace cedra::kernels {
namespace {

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  CEDRA_INLINE void set(int tile, int64_t tile_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

CEDRA_INLINE void load_config(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}
CEDRA_INLINE void release_tiles() { __asm__ volatile("tilerelease"); }

template <int Tile>
CEDRA_INLINE void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
CEDRA_INLINE void tile_load(const void* rows, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                   :
                   : "r"(rows), "r"(stride), "i"(Tile)
                   : "memory");
}
template <int Tile>
CEDRA_INLINE void tile_store(void* rows, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                   :
                   : "r"(rows), "r"(stride), "i"(Tile)
                   : "memory");
}
// Sum += Left * Right.
template <int Sum, int Left, int Right>
CEDRA_INLINE void tile_dot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(Left), "i"(Right));
}

}  // namespace
}  // namespace cedra::kernels
