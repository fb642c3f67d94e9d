// Which blocks of 64 starts hold a boxcar of floats above its threshold: all boxcars, by sums that are rounded as the
// host rounds them.
#include "widths.cuh"

const u32 THREADS = 512;
// Samples from one given sum to the next.
const u32 GRAIN = 32;
const u32 MOST_BLOCKS = 128;

// Neighbouring threads' samples lie on different banks.
INLINE u32 place_of(u32 x) { return x + x / GRAIN; }

KERNEL __launch_bounds__(THREADS, 1)
    screen(SERIES_PARAMETERS, const Noise* own, const Noise* carried, const double* totals, u32* words, double snr,
           u32 entries, u32 tiles, u32 starts, u32 length, u32 widths) {
  SHARED_MEMORY(memory);
  __shared__ double least[TILE_WIDTHS];
  __shared__ u32 flags[MOST_BLOCKS];
  Series series = SERIES;
  Tile tile(windows, tiles, starts, 1);
  Noise noise = series.noise(own, carried, tile.dm, tile.j);
  double* sums = (double*)memory;
  if (threadIdx.x < MOST_BLOCKS) flags[threadIdx.x] = 0;
  u32 available = series.available(tile.dm, tile.j), last = smaller(available, window);
  if (noise.sigma > 0.0 && tile.start < last) {
    Repaired repaired(series, own, carried, tile.dm, tile.j);
    if (threadIdx.x < widths) least[threadIdx.x] = Threshold(noise, snr, width_of(threadIdx.x)).least;
    const double* given = totals + ((u64)tile.dm * windows + tile.j) * entries;
    for (u32 chunk = threadIdx.x; chunk < length / GRAIN; chunk += THREADS) {
      u32 first = tile.start + chunk * GRAIN;
      if (first > available) continue;
      double sum = given[first / GRAIN];
      for (u32 i = 0; i < GRAIN; i++) {
        sums[place_of(chunk * GRAIN + i)] = sum;
        if (first + i < available) sum += (double)repaired.at(first + i);
      }
    }
    __syncthreads();
    for (u32 start = threadIdx.x; start < starts && tile.start + start < last; start += THREADS) {
      double before = sums[place_of(start)];
      bool hit = false;
      for (u32 index = 0; index < widths; index++) {
        u32 width = width_of(index);
        if (start % stride_of(width) != 0 || tile.start + start + width > available) continue;
        hit |= sums[place_of(start + width)] - before >= least[index];
      }
      if (hit) atomicMax(&flags[start / BLOCK], 1u);
    }
  }
  __syncthreads();
  write_flags(flags, words + tile.word, parts(starts, 32 * BLOCK), smaller(starts / BLOCK, 32u));
}
