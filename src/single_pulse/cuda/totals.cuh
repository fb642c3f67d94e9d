// Exact sums over the integer samples of a window within its clip.
#pragma once
#include "noise.cuh"

#if WIDE
typedef i64 Difference;
#else
typedef i32 Difference;
#endif

// Largest difference whose squares fit 32 bits when 64 of them are added.
const i32 SHORT = 8191;

// Sums of one thread; WIDE squares may exceed 64 bits and lie in two halves.
struct Totals {
  u64 count, low, high;
  i64 sum;

  INLINE void add(Difference difference, bool inside) {
    difference = inside ? difference : 0;
    count += inside;
    sum += difference;
#if WIDE
    u64 size = (u64)(difference < 0 ? -difference : difference), square = size * size;
    low += (u32)square;
    high += square >> 32;
#else
    low += (u64)((i64)difference * difference);
#endif
  }
  // Sums over all lanes; every lane gets the result.
  INLINE void join() {
    // A lane counts fewer than 2^27 samples.
    count = __reduce_add_sync(0xffffffff, (u32)count);
    for (i32 lanes = 16; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, lanes);
      low += __shfl_xor_sync(0xffffffff, low, lanes);
      if (WIDE) high += __shfl_xor_sync(0xffffffff, high, lanes);
    }
  }
  // Returns the sum of squares, rounded once.
  INLINE double squares() const {
    u64 top = high + (low >> 32), bottom = low & 0xffffffff;
    if (!WIDE) return (double)low;
    if (top < (1ull << 31)) return (double)(top << 32 | bottom);
    i32 shift = 32 - __clz((i32)(top >> 31));
    u64 rest = bottom & ((1ull << shift) - 1);
    u64 kept = (top << (32 - shift)) | (bottom >> shift) | (rest ? 1 : 0);
    return (double)kept * (double)(1ull << shift);
  }
};

// Adds every THREADS-th sample with 64-bit arithmetic.
template <u32 THREADS, class Load>
INLINE void add_long(Totals& totals, u32 valid, Difference centre, Difference limit, Load sample) {
  const u32 AHEAD = 4;
  for (u32 x = threadIdx.x % THREADS; x < valid; x += THREADS * AHEAD) {
    Sample values[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) values[k] = x + k * THREADS < valid ? sample(x + k * THREADS) : 0;
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) {
      Difference difference = (Difference)values[k] - centre;
      Difference size = difference < 0 ? -difference : difference;
      totals.add(difference, x + k * THREADS < valid && size <= limit);
    }
  }
}

// 32-bit sums of up to 64 samples.
struct Short {
  u32 count, squares;
  i32 sum;

  INLINE void add(i32 difference, i32 limit) {
    i32 size = difference < 0 ? -difference : difference;
    if (size > limit) return;
    count++;
    sum += difference;
    squares += (u32)(difference * difference);
  }
};

// Like `add_long`, with 32-bit arithmetic in parts of 64 samples.
template <u32 THREADS, class Load>
INLINE void add_short(Totals& totals, u32 valid, i32 centre, i32 limit, Load sample) {
  const u32 AHEAD = THREADS == 32 ? 16 : 8, STEP = THREADS * AHEAD, whole = valid / STEP * STEP, lane = threadIdx.x % THREADS;
  for (u32 part = lane; part < valid; part += 64 * THREADS) {
    Short some = {0, 0, 0};
    u32 x = part, end = smaller(part - lane + 64 * THREADS, whole) + lane;
    for (; x < end; x += STEP) {
      i32 values[AHEAD];
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) values[k] = (i32)sample(x + k * THREADS) - centre;
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) some.add(values[k], limit);
    }
    for (; x < smaller(part - lane + 64 * THREADS, valid); x += THREADS) some.add((i32)sample(x) - centre, limit);
    totals.count += some.count;
    totals.sum += some.sum;
    totals.low += some.squares;
  }
}

// Sums the first `valid` samples of a window that lie within its clip, or all of them without a clip.
template <u32 THREADS> INLINE Totals totals_of(const Row& row, u32 valid, const Estimate& estimate) {
  double most = estimate.limit;
  Difference centre = (Difference)estimate.centre;
  const double MOST = WIDE ? 8589934592.0 : 2147483647.0;
  Difference limit = (Difference)(estimate.pass < 0 || most > MOST ? MOST : most);
  Totals totals = {0, 0, 0, 0};
  row.with_place(0, valid, [&](auto sample) {
    if (!WIDE && limit <= SHORT)
      add_short<THREADS>(totals, valid, (i32)centre, (i32)limit, sample);
    else
      add_long<THREADS>(totals, valid, centre, limit, sample);
  });
  return totals;
}
