// Number, sum and sum of squares of the samples of a window within its clip.
#include "noise.cuh"

#if FLOATS

// Eight threads a window, each with its own lane: every machine adds in the same order.
KERNEL __launch_bounds__(128) moments(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Estimate* estimates,
                                      const u32* list, const u32* active) {
  Series series = SERIES;
  const u32 LANES = 8, AHEAD = 4, most = *active;
  u32 lane = threadIdx.x % LANES;
  for (u32 at = (blockIdx.x * 128 + threadIdx.x) / LANES; at < (most + 3) / 4 * 4; at += gridDim.x * 128 / LANES) {
    // Windows past the end of the list keep the warp whole.
    u32 index = list[smaller(at, most - 1)], dm = index / windows, j = index % windows;
    u32 valid = series.samples(dm, j);
    u64 start = (u64)j * window;
    double centre = estimates[index].centre, limit = estimates[index].limit;
    bool all = estimates[index].pass < 0;
    u32 repaired = series.is_first(j) ? 0 : reach;
    float before = (float)(j > 0 ? own[index - 1].mean : carried[dm].mean);
    double count = 0.0, sum = 0.0, squares = 0.0;
    for (u32 x = lane; x < valid; x += LANES * AHEAD) {
      float values[AHEAD];
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) values[k] = x + k * LANES < valid ? series.at(dm, start + x + k * LANES) : 0.0f;
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) {
        u32 place = x + k * LANES;
        float y = values[k];
        bool counts = place < valid && (is_finite(y) || place < repaired);
        if (!is_finite(y)) y = before;
        double difference = (double)y - centre;
        bool inside = counts && (all || size_of(difference) <= limit);
        difference = inside ? difference : 0.0;
        count += inside ? 1.0 : 0.0;
        sum += difference;
        squares += product(difference, difference);
      }
    }
    double total[3] = {0.0, 0.0, 0.0};
    for (u32 other = 0; other < LANES; other++) {
      u32 from = threadIdx.x % 32 / LANES * LANES + other;
      total[0] += __shfl_sync(0xffffffff, count, from);
      total[1] += __shfl_sync(0xffffffff, sum, from);
      total[2] += __shfl_sync(0xffffffff, squares, from);
    }
    if (lane == 0 && at < most) {
      estimates[index].count = total[0];
      estimates[index].sum = total[1];
      estimates[index].squares = total[2];
    }
  }
}

#else

const u32 THREADS = 512;
#if WIDE
typedef i64 Difference;
#else
typedef i32 Difference;
#endif

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
  INLINE void join() {
    for (i32 lanes = 16; lanes > 0; lanes /= 2) {
      count += __shfl_down_sync(0xffffffff, count, lanes);
      sum += __shfl_down_sync(0xffffffff, sum, lanes);
      low += __shfl_down_sync(0xffffffff, low, lanes);
      if (WIDE) high += __shfl_down_sync(0xffffffff, high, lanes);
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

// All samples of a thread, in 64 bits.
template <class Load> INLINE void add_long(Totals& totals, u32 valid, Difference centre, Difference limit, Load sample) {
  const u32 AHEAD = 4;
  for (u32 x = threadIdx.x; x < valid; x += THREADS * AHEAD) {
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

// Differences of up to so much: the squares of 64 of them add up within 32 bits.
const i32 SHORT = 8191;
const u32 SHORT_SAMPLES = 64 * THREADS;

// The same in 32 bits, in parts of 64 samples.
template <class Load> INLINE void add_short(Totals& totals, u32 valid, i32 centre, i32 limit, Load sample) {
  const u32 AHEAD = 8;
  for (u32 part = threadIdx.x; part < valid; part += SHORT_SAMPLES) {
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

KERNEL __launch_bounds__(THREADS, WIDE ? 1 : 2) moments(SERIES_PARAMETERS, const Noise* own, const Noise* carried,
                                             Estimate* estimates, const u32* list, const u32* active) {
  __shared__ Totals parts_of[THREADS / 32];
  Series series = SERIES;
  for (u32 at = blockIdx.x; at < *active; at += gridDim.x) {
    u32 index = list[at], dm = index / windows, j = index % windows, valid = series.samples(dm, j);
    Row row = series.row(dm, j);
    double most = estimates[index].limit;
    Difference centre = (Difference)estimates[index].centre;
    const double MOST = WIDE ? 8589934592.0 : 2147483647.0;
    Difference limit = (Difference)(estimates[index].pass < 0 || most > MOST ? MOST : most);
    Totals totals = {0, 0, 0, 0};
    row.with_place(0, valid, [&](auto sample) {
      if (!WIDE && limit <= SHORT)
        add_short(totals, valid, (i32)centre, (i32)limit, sample);
      else
        add_long(totals, valid, centre, limit, sample);
    });
    totals.join();
    if (threadIdx.x % 32 == 0) parts_of[threadIdx.x / 32] = totals;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (u32 other = 1; other < THREADS / 32; other++) {
        totals.count += parts_of[other].count;
        totals.sum += parts_of[other].sum;
        totals.low += parts_of[other].low;
        totals.high += parts_of[other].high;
      }
      estimates[index].count = (double)totals.count;
      estimates[index].sum = (double)totals.sum;
      estimates[index].squares = totals.squares();
    }
    __syncthreads();
  }
}

#endif
