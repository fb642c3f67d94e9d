// Loads of samples into shared memory in stages, and the division of a channel's products into items.
//
// An item names up to GROUPS groups of 32 inputs, which share a stage, and for each warp a piece of a tile: the 32
// inputs of one group (rows) by the 32 or 64 inputs of one or two other groups (columns). A work unit is an
// item of one channel.
//
// Shared memory: a ring of STAGES stages, each GROUPS x 32 rows of 128 bytes. XOR with row % 8 permutes the 16-byte
// chunks.
#pragma once
#include "device.cuh"

#define THREADS (32 * WARPS)
#define STAGE_BYTES (GROUPS * 32 * 128)
// Rows that all threads copy at once, and such passes per stage.
#define PASS_ROWS (THREADS / 8)
#define PASSES ((GROUPS * 32 + PASS_ROWS - 1) / PASS_ROWS)

struct __align__(16) Item {
  u16 groups[8];  // input group of each slot, or NO_GROUP
  u8 pieces[16];  // per warp: slot of the rows, slot of the columns << 3, groups of columns << 6

  // Returns the index of the first sum of a piece; the channel begins at tile `tiles`.
  INLINE u64 first(u32 rows, u32 columns, u64 tiles) const {
    u32 row = groups[rows] * 32, column = groups[columns] * 32, i = row / EDGE, j = column / EDGE;
    return ((tiles + i * (i + 1) / 2 + j) * EDGE + row % EDGE) * EDGE + column % EDGE;
  }
};
#define NO_GROUP 0xffff

struct Spectra {
  const u8* samples;
  u64 channel_stride;
  u32 input_stride, inputs, bytes;  // bytes: sample bytes of one row
};
struct WorkUnits {
  const Item* items;
  u32 items_count, count;
};

// Copies samples into shared memory, stage after stage and unit after unit. Groups in slots 0 to 3 are consecutive in
// the spectra, and so are those from slot 4 on. Rows without an input are not written.
struct Loader {
  const u8 *low, *high;  // source of this thread's 16 bytes in its first row of slot 0, and of slot 4
  u32 there;             // bit p: the row of pass p has an input
  u32 work, left;        // left: remaining bytes of the work unit, in whole stages

  INLINE void begin(const Spectra& x, const WorkUnits& work_units) {
    if (work >= work_units.count) return;
    const u16* groups = work_units.items[work % work_units.items_count].groups;
    const u8* channel = x.samples + (u64)(work / work_units.items_count) * x.channel_stride + threadIdx.x % 8 * 16;
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
  // Copies the first `bytes` of 16 bytes of each row and fills the rest with 0.
  template <bool WHOLE> INLINE void copy(u32 first, u32 last, u32 to, u32 bytes, const Spectra& x) const {
    u32 own = threadIdx.x / 8, chunk = threadIdx.x % 8;
    to += own * 128 + ((chunk ^ own % 8) << 4);
#pragma unroll
    for (u32 pass = first; pass < last; pass++) {
      u32 side = pass * PASS_ROWS < 128 ? 0 : 128;
      const u8* from = (side ? high : low) + (u64)(pass * PASS_ROWS - side) * x.input_stride;
      // PASS_ROWS may not be a multiple of 8: the next pass then has another chunk permutation.
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
  // Issues part PART of PARTS of this thread's copies of a stage.
  template <u32 PART, u32 PARTS> INLINE void load(u32 to, const Spectra& x, const WorkUnits& work_units) {
    if (work < work_units.count) {
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
          begin(x, work_units);
        }
      }
    }
    if (PART + 1 == PARTS) copy_async_commit();
  }
};

// Ring of stages; `current` is the one that is multiplied.
struct Ring {
  Loader loader;
  u32 first, current;

  // Starts the loads of the first stages of this block's first work unit.
  INLINE Ring(const u8* memory, const Spectra& x, const WorkUnits& work_units) : first(shared_address(memory)) {
    loader.work = blockIdx.x;
    loader.begin(x, work_units);
#pragma unroll 1
    for (u32 i = 0; i + 1 < STAGES; i++) loader.load<0, 1>(first + i * STAGE_BYTES, x, work_units);
    current = first + (STAGES - 1) * STAGE_BYTES;
  }
  // Waits for the next stage. After the barrier, no warp reads the previous stage.
  INLINE void wait() {
    copy_async_wait<STAGES - 2>();
    named_barrier(1, THREADS);
    current = current + STAGE_BYTES == first + STAGES * STAGE_BYTES ? first : current + STAGE_BYTES;
  }
  // Issues part PART of PARTS of the loads into the stage that was multiplied last.
  template <u32 PART, u32 PARTS> INLINE void fetch(const Spectra& x, const WorkUnits& work_units) {
    loader.load<PART, PARTS>(current == first ? first + (STAGES - 1) * STAGE_BYTES : current - STAGE_BYTES, x, work_units);
  }
};

// Piece of a work unit for one warp.
struct Piece {
  u32 rows, columns, width;  // slots, and number of groups of columns: 0 if the warp has no piece
  u32 side;                  // slot where the columns of all pieces begin
  u64 first;                 // index of its first sum

  INLINE Piece(const WorkUnits& work_units, u32 work, u32 tiles) : width(0) {
    if (work >= work_units.count) return;
    const Item& item = work_units.items[work % work_units.items_count];
    u32 piece = item.pieces[threadIdx.x / 32];
    rows = piece % 8, columns = piece / 8 % 8, width = piece / 64, side = item.pieces[0] / 8 & 4;
    first = item.first(rows, columns, (u64)(work / work_units.items_count) * tiles);
  }
};
