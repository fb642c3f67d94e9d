// How samples of a channel's inputs come into shared memory, stage after stage, and what a block multiplies at a time.
//
// An item names up to GROUPS groups of 32 inputs, which stand in shared memory together, and for each warp a piece of a
// tile: the 32 inputs of one group (rows) by the 32 or 64 of one or two others (columns). A work is an item of a channel.
//
// Shared memory: a ring of STAGES stages, each GROUPS x 32 rows of 128 bytes, whose 16-byte chunks are permuted by row % 8.
#pragma once
#include "device.cuh"

#define THREADS (32 * WARPS)
#define STAGE_BYTES (GROUPS * 32 * 128)
// Rows that all threads copy at a time, and times that they do so in a stage.
#define PASS_ROWS (THREADS / 8)
#define PASSES ((GROUPS * 32 + PASS_ROWS - 1) / PASS_ROWS)

struct __align__(16) Item {
  u16 groups[8];  // what stands in each place, or NOBODY
  u8 pieces[16];  // of each warp: place of rows, place of columns << 3, groups of columns << 6

  // The number of a piece's first sum among all, of which those of its channel begin with tile `tiles`.
  INLINE u64 first(u32 rows, u32 columns, u64 tiles) const {
    u32 row = groups[rows] * 32, column = groups[columns] * 32, i = row / EDGE, j = column / EDGE;
    return ((tiles + i * (i + 1) / 2 + j) * EDGE + row % EDGE) * EDGE + column % EDGE;
  }
};
#define NOBODY 0xffff

struct Spectra {
  const u8* samples;
  u64 channel_stride;
  u32 input_stride, inputs, bytes;  // the last of a row's samples
};
struct Works {
  const Item* items;
  u32 items_count, count;
};

// What is copied into shared memory, stage after stage, work after work. Groups at places 0 to 3 follow each other in the
// spectra, and so do those from place 4 on. Rows that are no input's are left as they were.
struct Loader {
  const u8 *low, *high;  // this thread's 16 bytes of its first row of place 0, and of place 4
  u32 there;             // whose bit p says whether its row of pass p is an input's
  u32 work, left;        // whole stages' bytes from there on

  INLINE void begin(const Spectra& x, const Works& works) {
    if (work >= works.count) return;
    const u16* groups = works.items[work % works.items_count].groups;
    const u8* channel = x.samples + (u64)(work / works.items_count) * x.channel_stride + threadIdx.x % 8 * 16;
    low = channel + (u64)(groups[0] * 32 + threadIdx.x / 8) * x.input_stride;
    high = GROUPS > 4 ? channel + (u64)(groups[4] * 32 + threadIdx.x / 8) * x.input_stride : low;
    left = parts(x.bytes, 128u) * 128;
    there = 0;
#pragma unroll 1
    for (u32 pass = 0; pass < PASSES; pass++) {
      u32 row = pass * PASS_ROWS + threadIdx.x / 8;
      if (row < GROUPS * 32 && groups[row / 32] * 32 + row % 32 < x.inputs) there |= 1u << pass;
    }
  }
  // Copies `bytes` of 16 of each row, the others are 0.
  template <bool WHOLE> INLINE void copy(u32 first, u32 last, u32 to, u32 bytes, const Spectra& x) const {
    u32 own = threadIdx.x / 8, chunk = threadIdx.x % 8;
    to += own * 128 + ((chunk ^ own % 8) << 4);
#pragma unroll
    for (u32 pass = first; pass < last; pass++) {
      u32 side = pass * PASS_ROWS < 128 ? 0 : 128;
      const u8* from = (side ? high : low) + (u64)(pass * PASS_ROWS - side) * x.input_stride;
      // A pass further is as many rows, and may permute chunks in another way.
      u32 address = (to ^ pass * PASS_ROWS % 8 << 4) + pass * PASS_ROWS * 128;
      if (there >> pass & 1) {
        if (WHOLE) {
          copy_async_16(address, from);
        } else {
          copy_async_16_filled(address, from, bytes);
        }
      }
    }
  }
  // Part PART of PARTS of this thread's copies of a stage.
  template <u32 PART, u32 PARTS> INLINE void load(u32 to, const Spectra& x, const Works& works) {
    if (work < works.count) {
      u32 done = parts(x.bytes, 128u) * 128 - left + threadIdx.x % 8 * 16;
      if (done + 16 <= x.bytes) {
        copy<true>(PART * PASSES / PARTS, (PART + 1) * PASSES / PARTS, to, 16, x);
      } else {
        copy<false>(PART * PASSES / PARTS, (PART + 1) * PASSES / PARTS, to, done < x.bytes ? x.bytes - done : 0, x);
      }
      if (PART + 1 == PARTS) {
        low += 128, high += 128, left -= 128;
        if (left == 0) {
          work += gridDim.x;
          begin(x, works);
        }
      }
    }
    if (PART + 1 == PARTS) copy_async_commit();
  }
};

// The ring of stages: `current` is the one that is multiplied.
struct Ring {
  Loader loader;
  u32 first, current;

  // Fills it with the first stages of this block's first work.
  INLINE Ring(const u8* memory, const Spectra& x, const Works& works) : first(shared_address(memory)) {
    loader.work = blockIdx.x;
    loader.begin(x, works);
#pragma unroll 1
    for (u32 i = 0; i + 1 < STAGES; i++) loader.load<0, 1>(first + i * STAGE_BYTES, x, works);
    current = first + (STAGES - 1) * STAGE_BYTES;
  }
  // Waits for the next stage; nobody reads the last one any more.
  INLINE void wait() {
    copy_async_wait<STAGES - 2>();
    named_barrier(1, THREADS);
    current = current + STAGE_BYTES == first + STAGES * STAGE_BYTES ? first : current + STAGE_BYTES;
  }
  // Has a part of PARTS of another fetched in the last one's place.
  template <u32 PART, u32 PARTS> INLINE void fetch(const Spectra& x, const Works& works) {
    loader.load<PART, PARTS>(current == first ? first + (STAGES - 1) * STAGE_BYTES : current - STAGE_BYTES, x, works);
  }
};

// A warp's piece of a work.
struct Piece {
  u32 rows, columns, width;  // places, and groups of columns: 0 where the warp has none
  u32 side;                  // the place where the columns of all pieces begin
  u64 first;                 // its first sum among all

  INLINE Piece(const Works& works, u32 work, u32 tiles) : width(0) {
    if (work >= works.count) return;
    const Item& item = works.items[work % works.items_count];
    u32 piece = item.pieces[threadIdx.x / 32];
    rows = piece % 8, columns = piece / 8 % 8, width = piece / 64, side = item.pieces[0] / 8 & 4;
    first = item.first(rows, columns, (u64)(work / works.items_count) * tiles);
  }
};
