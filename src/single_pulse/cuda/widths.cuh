// Boxcar widths of the search: 1 to 7, then 4, 5, 6 and 7 times every power of two from 2 on.
#pragma once
#include "series.cuh"

// Starts per flag bit; flagged blocks are evaluated start by start.
const u32 BLOCK = 64;
// Largest number of widths in a tile: up to 7 x 256 samples.
const u32 TILE_WIDTHS = 39;

INLINE u32 width_of(u32 index) { return index < 7 ? index + 1 : (4 + (index - 7) % 4) << ((index - 7) / 4 + 1); }

// Tile of a thread block: one of `tiles` tiles of a window, or all starts of `tile_windows` windows.
struct Tile {
  u32 dm, j, start;
  // Index of the tile's first word of flags.
  u64 word;

  INLINE Tile(u32 windows, u32 tiles, u32 starts, u32 tile_windows) {
    u32 tile = blockIdx.x % tiles, row = blockIdx.x / tiles, groups = parts(windows, tile_windows);
    dm = row / groups;
    j = row % groups * tile_windows;
    start = tile * starts;
    u32 words = tiles * parts(starts / tile_windows, BLOCK * 32);
    word = (u64)(dm * windows + j) * words + tile * (words / tiles);
  }
};

// Packs the tile's block flags into `count` words of `word_blocks` bits.
INLINE void write_flags(const u32* flags, u32* words, u32 count, u32 word_blocks) {
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= count) return;
  u32 word = __ballot_sync(0xffffffff, lane < word_blocks && flags[warp * word_blocks + lane] != 0);
  if (lane == 0) words[warp] = word;
}
