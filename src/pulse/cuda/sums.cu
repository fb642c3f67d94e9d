// Sums of all samples of a window before every so many of them, and the boxcars that are too wide for a tile.
#include "widths.cuh"

#if FLOATS
typedef double Sum;

// Samples from one kept sum to the next.
const u32 GRAIN = 32;

// A warp for 32 trials, each of which adds its samples one by one: every machine rounds alike.
KERNEL __launch_bounds__(32) sums(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Sum* totals, u32 entries,
                                  u32 grain, u32 dms) {
  __shared__ float rows[32][33];
  Series series = SERIES;
  u32 top = blockIdx.x * 32, lane = threadIdx.x, mine = smaller(top + lane, dms - 1);
  for (u32 j = 0; j < windows; j++) {
    u32 available = series.available(mine, j), longest = __reduce_max_sync(0xffffffff, available);
    Repaired repaired(series, own, carried, mine, j);
    Sum sum = 0.0;
    Sum* out = totals + ((u64)mine * windows + j) * entries;
    for (u32 x = 0; x <= longest; x += GRAIN) {
#pragma unroll 8
      for (u32 row = 0; row < 32; row++) {
        u32 dm = smaller(top + row, dms - 1);
        bool counts = x + lane < series.available(dm, j);
        rows[row][lane] = counts ? series.at(dm, (u64)j * window + x + lane) : 0.0f;
      }
      __syncwarp();
      if (top + lane < dms && x <= available && x / GRAIN < entries) out[x / GRAIN] = sum;
      for (u32 i = 0; i < 32; i++) {
        float y = rows[lane][i];
        if (!is_finite(y)) y = x + i < series.reach ? repaired.before : repaired.now;
        if (x + i < available) sum += (double)y;
      }
      __syncwarp();
    }
  }
}

#else
typedef i64 Sum;

const u32 THREADS = 256;

INLINE Sum warp_total(Sum sum) {
  for (i32 lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  return sum;
}

// A block of threads for a window: a warp sums the samples of one entry.
KERNEL __launch_bounds__(THREADS) sums(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Sum* totals,
                                       u32 entries, u32 grain, u32 dms) {
  __shared__ Sum parts_of[THREADS];
  Series series = SERIES;
  u32 dm = blockIdx.x / windows, j = blockIdx.x % windows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  u32 available = series.available(dm, j);
  Sum* out = totals + (u64)blockIdx.x * entries;
  Sum before = 0;
  for (u32 round = 0; round < entries; round += THREADS) {
    for (u32 i = warp * 32; i < warp * 32 + 32; i++) {
      Sum sum = 0;
      for (u32 k = lane; k < grain; k += 32) {
        u32 x = (round + i) * grain + k;
        if (x < available) sum += series.at(dm, (u64)j * window + x);
      }
      sum = warp_total(sum);
      if (lane == 0) parts_of[i] = sum;
    }
    __syncthreads();
    Sum sum = before, total = 0;
    for (u32 i = 0; i < THREADS; i++) {
      if (i < threadIdx.x) sum += parts_of[i];
      total += parts_of[i];
    }
    if (round + threadIdx.x < entries) out[round + threadIdx.x] = sum;
    before += total;
    __syncthreads();
  }
}
#endif

// A lane for each block of starts, a warp for each word of flags. All strides here are multiples of the grain.
KERNEL __launch_bounds__(256) wide(SERIES_PARAMETERS, const Noise* own, const Noise* carried, u32* words,
                                   const Sum* totals, double snr, u32 entries, u32 grain, u32 window_words,
                                   u32 first_width, u32 last_width, u32 dms) {
  Series series = SERIES;
  u64 word = (u64)blockIdx.x * 8 + threadIdx.x / 32;
  u32 row = (u32)(word / window_words), dm = row / windows, j = row % windows;
  if (row >= dms * windows) return;
  Noise noise = series.noise(own, carried, dm, j);
  u32 available = series.available(dm, j), starts = smaller(available, window);
  u32 begin = ((u32)(word % window_words) * 32 + threadIdx.x % 32) * BLOCK;
  const Sum* sums = totals + (u64)row * entries;
  bool hit = false;
  if (noise.sigma > 0.0) {
    for (u32 index = first_width; index < last_width; index++) {
      u32 width = width_of(index), stride = stride_of(width);
      double least = Threshold(noise, snr, width).least;
      // The first start in the block.
      for (u32 start = parts(begin, stride) * stride; start < smaller(begin + BLOCK, starts); start += stride)
        hit |= start + width <= available && (double)(sums[(start + width) / grain] - sums[start / grain]) >= least;
    }
  }
  u32 flags = __ballot_sync(0xffffffff, hit);
  if (threadIdx.x % 32 == 0 && flags != 0) words[word] |= flags;
}
