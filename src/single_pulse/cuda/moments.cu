// Count, sum and sum of squares of a window's samples within its clip.
#include "noise.cuh"

#if FLOATS

// Eight threads per window, one per partial sum, so that all devices add in the same order.
KERNEL __launch_bounds__(128) moments(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Estimate* estimates,
                                      const u32* list, const u32* active, u32* spoilt) {
  Series series = SERIES;
  const u32 LANES = 8, AHEAD = 16, most = *active;
  u32 lane = threadIdx.x % LANES;
  for (u32 at = (blockIdx.x * 128 + threadIdx.x) / LANES; at < (most + 3) / 4 * 4; at += gridDim.x * 128 / LANES) {
    // Windows past the end of the list repeat the last one to keep the warp converged.
    u32 index = list[smaller(at, most - 1)], dm = index / windows, j = index % windows;
    u32 valid = series.samples(dm, j), repaired = series.is_first(j) ? 0 : reach, count = 0;
    Row row = series.row(dm, j);
    double centre = estimates[index].centre, limit = estimates[index].limit, sum = 0.0, squares = 0.0;
    bool all = estimates[index].pass < 0;
    row.with_place(0, valid, [&](auto sample) {
      for (u32 x = lane; x < valid; x += LANES * AHEAD) {
        float values[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) values[k] = x + k * LANES < valid ? sample(x + k * LANES) : 0.0f;
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
          u32 place = x + k * LANES;
          bool counts = place < valid;
          if (!is_finite(values[k])) {
            counts = counts && place < repaired;
            // Uses the previous window's mean; inside a batch it is still being estimated.
            if (counts && j > 0) *spoilt = 1;
            values[k] = counts && j == 0 ? (float)carried[dm].mean : 0.0f;
          }
          double difference = (double)values[k] - centre;
          bool inside = counts && (all || size_of(difference) <= limit);
          difference = inside ? difference : 0.0;
          count += inside;
          sum += difference;
          squares += product(difference, difference);
        }
      }
    });
    double total[2] = {0.0, 0.0};
    u32 counted = 0;
    for (u32 other = 0; other < LANES; other++) {
      u32 from = threadIdx.x % 32 / LANES * LANES + other;
      counted += __shfl_sync(0xffffffff, count, from);
      total[0] += __shfl_sync(0xffffffff, sum, from);
      total[1] += __shfl_sync(0xffffffff, squares, from);
    }
    if (lane == 0 && at < most) {
      estimates[index].count = (double)counted;
      estimates[index].sum = total[0];
      estimates[index].squares = total[1];
    }
  }
}

#else

#include "totals.cuh"

const u32 THREADS = 512;

KERNEL __launch_bounds__(THREADS, WIDE ? 1 : 2) moments(SERIES_PARAMETERS, const Noise* own, const Noise* carried,
                                             Estimate* estimates, const u32* list, const u32* active, u32*) {
  __shared__ Totals parts_of[THREADS / 32];
  Series series = SERIES;
  for (u32 at = blockIdx.x; at < *active; at += gridDim.x) {
    u32 index = list[at], dm = index / windows, j = index % windows;
    Totals totals = totals_of<THREADS>(series.row(dm, j), series.samples(dm, j), estimates[index]);
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
