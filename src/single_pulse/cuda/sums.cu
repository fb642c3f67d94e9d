// Prefix sums of a window at every GRAIN-th sample, and boxcars that are too wide for a tile.
#include "widths.cuh"

#if FLOATS
typedef double Sum;

// Samples between stored sums; each lane reads one of them.
const u32 GRAIN = 32;

// Returns the end of a window's last flagged block.
INLINE u32 last_flagged(const u32* words, u32 window_words, u32 word_blocks) {
  u32 word = 0;
  for (u32 i = window_words; word == 0 && i-- > 0;)
    if ((word = words[i]) != 0) return (i * word_blocks + 32 - __clz((i32)word)) * BLOCK;
  return 0;
}

// One warp per window: every lane adds the samples in order, so that all devices round alike. Without `all`, windows
// with no flagged block are skipped; all blocks of loud windows are flagged.
KERNEL __launch_bounds__(128) sums(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Sum* totals, u32 entries,
                                   u32* words, const u32* loud, u32 window_words, u32 word_blocks, u32 all, u32 dms) {
  Series series = SERIES;
  u32 index = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= dms * windows) return;
  u32 dm = index / windows, j = index % windows, available = series.available(dm, j), last = available;
  u32* flags = words + (u64)index * window_words;
  if (loud[index]) {
    for (u32 i = lane; i < window_words; i += 32) flags[i] = word_blocks < 32 ? (1u << word_blocks) - 1 : 0xffffffff;
  } else if (!all) {
    u32 end = last_flagged(flags, window_words, word_blocks);
    if (end == 0) return;
    last = smaller(available, end + 2048);
  }
  Repaired repaired(series, own, carried, dm, j);
  Row row = series.row(dm, j);
  Sum sum = 0.0, *out = totals + (u64)index * entries;
  const u32 AHEAD = 8;
  for (u32 start = 0; start <= last; start += GRAIN * AHEAD) {
    float values[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) {
      u32 x = start + k * GRAIN + lane;
      values[k] = x < available ? row.at(x) : 0.0f;
      if (!is_finite(values[k])) values[k] = x < series.reach ? repaired.before : repaired.now;
    }
#pragma unroll
    for (u32 k = 0; k < AHEAD; k++) {
      u32 x = start + k * GRAIN;
      if (lane == 0 && x <= available && x / GRAIN < entries) out[x / GRAIN] = sum;
#pragma unroll
      for (u32 i = 0; i < GRAIN; i++) sum += (double)__shfl_sync(0xffffffff, values[k], i);
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

// One thread block per window; a warp sums the samples of one entry.
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

// One lane per block of starts, one warp per word of flags. All strides here are multiples of the grain.
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
      // First start of the block that is a multiple of the stride.
      for (u32 start = parts(begin, stride) * stride; start < smaller(begin + BLOCK, starts); start += stride)
        hit |= start + width <= available && (double)(sums[(start + width) / grain] - sums[start / grain]) >= least;
    }
  }
  u32 flags = __ballot_sync(0xffffffff, hit);
  if (threadIdx.x % 32 == 0 && flags != 0) words[word] |= flags;
}
