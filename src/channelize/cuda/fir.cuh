// Windowed sums (FIR) of consecutive spectra; each thread computes two neighbouring channels.
// Each row of samples is decoded once for all spectra of the batch: row k is multiplied by tap k - j for spectrum j.
// Every sum adds its taps in order, so its value does not depend on the batch size.
#pragma once
#include "decode.cuh"

// Loads each tap of the ring one row before its use, which costs two extra registers.
#ifndef EARLY_TAPS
#define EARLY_TAPS 0
#endif

// Order of a row's products in the loop over blocks: 0 from both ends inwards, 1 ascending, 2 descending. The order
// decides whether ptxas finds a register allocation without bank conflicts; the tuner tries it.
#ifndef PRODUCT_ORDER
#define PRODUCT_ORDER 0
#endif

// Maximum number of taps held in registers. More taps pass through a ring of as many entries as there are spectra.
constexpr int MOST_HELD = 16;

INLINE void add_product(float4& sum, float2 tap, float4 x) {
  sum.x = fmaf(tap.x, x.x, sum.x);
  sum.z = fmaf(tap.y, x.z, sum.z);
  sum.y = fmaf(tap.x, x.y, sum.y);
  sum.w = fmaf(tap.y, x.w, sum.w);
}

// One column of words: the first NEAR rows in shared memory, all rows in global memory.
template <int NEAR> struct Column {
  const Word* shared;
  const Word* global;
  const float2* taps;
  // Words from row to row in global memory, taps from row to row, words from row to row in shared memory.
  int pitch, tap_pitch, near_pitch;

  INLINE Word near(int row) const { return shared[row * near_pitch]; }
  INLINE Word far(int row) const { return __ldg(global + (u64)row * pitch); }
  INLINE float2 tap(int row) const { return __ldg(taps + row * tap_pitch); }
};

// Register queue of AHEAD rows in flight from global memory.
template <int NEAR> struct Rows {
  Word words[AHEAD];

  INLINE void start(const Column<NEAR>& column, int rows) {
#pragma unroll
    for (int row = NEAR; row < AHEAD; row++)
      if (row < rows) words[row % AHEAD] = column.far(row);
  }
  // Returns row `slot`, counted from the column's start, and issues the load of the row AHEAD of it unless `is_last`.
  INLINE float4 take(const Column<NEAR>& column, int slot, bool is_near, bool is_last) {
    const Word word = is_near ? column.near(slot) : words[slot % AHEAD];
    if (!is_last) words[slot % AHEAD] = column.far(slot + AHEAD);
    return decode(word);
  }
};

// Holds all taps in registers. With MIRRORED the taps are those of the mirrored column of a symmetric window.
template <int SPECTRA, int NEAR, bool LOADS, bool MIRRORED = false>
INLINE void filter_held(float4 (&sums)[SPECTRA], float2 (&taps)[TAPS], const Column<NEAR>& column) {
  constexpr int ROWS = TAPS + SPECTRA - 1;
  Rows<NEAR> rows;
  rows.start(column, ROWS);
#pragma unroll
  for (int k = 0; k < ROWS; k++) {
    if (LOADS && k < TAPS) taps[k] = column.tap(k);
    const bool is_last = k + AHEAD < NEAR || k + AHEAD >= ROWS;
    const float4 x = rows.take(column, k, k < NEAR, is_last);
#pragma unroll
    for (int j = 0; j < SPECTRA; j++)
      if (k - j >= 0 && k - j < TAPS) {
        const float2 tap = MIRRORED ? taps[TAPS - 1 - (k - j)] : taps[k - j];
        add_product(sums[j], MIRRORED ? make_float2(tap.y, tap.x) : tap, x);
      }
  }
}

// Computes one spectrum, for launches shorter than a batch. Partial unrolling keeps loads of other columns out of the
// registers.
template <int NEAR> INLINE void filter_one(float4& sum, const Column<NEAR>& column) {
#pragma unroll(TAPS >= 16 ? 8 : TAPS > 1 ? TAPS / 2 : 1)
  for (int k = 0; k < TAPS; k++) add_product(sum, column.tap(k), decode(column.far(k)));
}

// Passes the taps through a ring of SPECTRA registers. With EARLY_TAPS the tap table has one more row than taps. The
// first rows start one sum each, the middle rows contribute to all sums, and the last rows end one sum each. The loop over blocks is not unrolled,
// because the code would exceed the instruction cache.
template <int SPECTRA, int NEAR>
INLINE void filter_ring(float4 (&sums)[SPECTRA], Column<NEAR> column) {
  constexpr int ROWS = TAPS + SPECTRA - 1, BLOCK = SPECTRA >= 8 ? SPECTRA : 16;
  // Number of blocks whose rows all have a successor to prefetch.
  constexpr int MOST = SPECTRA > AHEAD ? TAPS - SPECTRA : TAPS - 1 - AHEAD, BLOCKS = MOST / BLOCK;
  constexpr int SHIFT = BLOCKS * BLOCK;
  static_assert(TAPS >= SPECTRA && (BLOCKS == 0 || NEAR <= SPECTRA), "the loop's rows are far");
  static_assert(BLOCK % AHEAD == 0 && BLOCK % SPECTRA == 0, "the rings advance by whole cycles per block");
  float2 taps[SPECTRA];
  Rows<NEAR> rows;
  rows.start(column, ROWS);
  float2 next = EARLY_TAPS ? column.tap(0) : make_float2(0.f, 0.f);
#pragma unroll
  for (int k = 0; k < SPECTRA; k++) {
    taps[k] = EARLY_TAPS ? next : column.tap(k);
    if (EARLY_TAPS) next = column.tap(k + 1);
    const bool is_last = k + AHEAD < NEAR || k + AHEAD >= ROWS;
    const float4 x = rows.take(column, k, k < NEAR, is_last);
#pragma unroll
    for (int j = 0; j <= k; j++) add_product(sums[k - j], taps[j], x);
  }
#pragma unroll 1
  for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
      const int k = SPECTRA + i;
      taps[k % SPECTRA] = EARLY_TAPS ? next : column.tap(k);
      if (EARLY_TAPS) next = column.tap(k + 1);
      const float4 x = rows.take(column, k, false, false);
#pragma unroll
      for (int n = 0; n < SPECTRA; n++) {
        const int j = PRODUCT_ORDER == 0   ? (n % 2 ? n / 2 : SPECTRA - 1 - n / 2)
                      : PRODUCT_ORDER == 1 ? n
                                           : SPECTRA - 1 - n;
        add_product(sums[j], taps[(k - j) % SPECTRA], x);
      }
    }
    column.taps += BLOCK * column.tap_pitch;
    column.global += (u64)BLOCK * column.pitch;
  }
  // `column` has advanced by SHIFT rows.
#pragma unroll
  for (int k = SPECTRA; k < ROWS - SHIFT; k++) {
    const int row = k + SHIFT;
    if (row < TAPS) taps[k % SPECTRA] = EARLY_TAPS ? next : column.tap(k);
    if (EARLY_TAPS && row + 1 < TAPS) next = column.tap(k + 1);
    const float4 x = rows.take(column, k, row < NEAR, row + AHEAD < NEAR || row + AHEAD >= ROWS);
#pragma unroll
    for (int j = 0; j < SPECTRA; j++)
      if (row - j < TAPS) add_product(sums[j], taps[(k - j + SPECTRA) % SPECTRA], x);
  }
}
