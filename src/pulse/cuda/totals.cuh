// Sums over the samples of a window that lie within its clip, of integers: exact.
#pragma once
#include "noise.cuh"

#if WIDE
typedef i64 Difference;
#else
typedef i32 Difference;
#endif

// Differences of up to so much: the squares of 64 of them add up within 32 bits.
const i32 SHORT = 8191;

// Sums of one thread: squares that may pass 64 bits lie in two halves.
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
  // The sums of all lanes, in each of them.
  INLINE void join() {
    // A lane sees fewer than 2^27 samples.
    count = __reduce_add_sync(0xffffffff, (u32)count);
    for (i32 lanes = 16; lanes > 0; lanes /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, lanes);
      low += __shfl_xor_sync(0xffffffff, low, lanes);
      if (WIDE) high += __shfl_xor_sync(0xffffffff, high, lanes);
    }
  }
  // Rounded once, however long it is.
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

// All samples of a thread, one of so many, in 64 bits.
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

// The same in 32 bits, in parts of 64 samples.
template <u32 THREADS, class Load>
INLINE void add_short(Totals& totals, u32 valid, i32 centre, i32 limit, Load sample) {
  const u32 AHEAD = 8, SHORT_SAMPLES = 64 * THREADS;
  for (u32 part = threadIdx.x % THREADS; part < valid; part += SHORT_SAMPLES) {
    u32 count = 0, squares = 0, end = smaller(part + SHORT_SAMPLES, valid);
    i32 sum = 0;
    for (u32 x = part; x < end; x += THREADS * AHEAD) {
      i32 values[AHEAD];
      // What is not there lies outside.
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) values[k] = x + k * THREADS < end ? (i32)sample(x + k * THREADS) - centre : SHORT + 1;
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) {
        i32 size = values[k] < 0 ? -values[k] : values[k];
        if (size <= limit) {
          count++;
          sum += values[k];
          squares += (u32)(values[k] * values[k]);
        }
      }
    }
    totals.count += count;
    totals.sum += sum;
    totals.low += squares;
  }
}

// The samples of a window that lie within a clip, or all of them while none is known.
template <u32 THREADS> INLINE Totals totals_of(const Series& series, u32 dm, u32 j, const Estimate& estimate) {
  u32 valid = series.samples(dm, j);
  double most = estimate.limit;
  Difference centre = (Difference)estimate.centre;
  const double MOST = WIDE ? 8589934592.0 : 2147483647.0;
  Difference limit = (Difference)(estimate.pass < 0 || most > MOST ? MOST : most);
  Totals totals = {0, 0, 0, 0};
  series.row(dm, j).with_place(0, valid, [&](auto sample) {
    if (!WIDE && limit <= SHORT)
      add_short<THREADS>(totals, valid, (i32)centre, (i32)limit, sample);
    else
      add_long<THREADS>(totals, valid, centre, limit, sample);
  });
  return totals;
}
