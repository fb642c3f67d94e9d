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

#include "totals.cuh"

const u32 THREADS = 512;

KERNEL __launch_bounds__(THREADS, WIDE ? 1 : 2) moments(SERIES_PARAMETERS, const Noise* own, const Noise* carried,
                                             Estimate* estimates, const u32* list, const u32* active) {
  __shared__ Totals parts_of[THREADS / 32];
  Series series = SERIES;
  for (u32 at = blockIdx.x; at < *active; at += gridDim.x) {
    u32 index = list[at], dm = index / windows, j = index % windows;
    Totals totals = totals_of<THREADS>(series, dm, j, estimates[index]);
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
