// Flags the blocks of 64 starts that may hold a boxcar above its threshold.
//
// A boxcar's sum is the difference of two prefix sums. For widths of 4 to 7 times B the starts form runs of B. The
// largest prefix sum over a run's ends less the smallest over its starts bounds all sums of the run, so that each
// octave costs half of the one below. Only widths up to 7 are compared one by one.
//
// Floats are summed in single precision here. Thresholds are lowered by the largest rounding error of these sums and
// of the host's; flagged blocks are evaluated again in double precision.
#include "widths.cuh"

const u32 THREADS = 512;
const u32 WARPS = THREADS / 32;
// Samples per thread and step.
const u32 CHUNK = 8;
// Largest number of blocks and of windows in a tile.
const u32 MOST_BLOCKS = 128, TILE_WINDOWS = 8;

#if FLOATS
typedef float Sum;
typedef float4 Four;
typedef float2 Two;
const Sum NEVER = -1e38f;
#define BLOCKS_PER_MULTIPROCESSOR 2
#elif SUM_BITS == 64
typedef i64 Sum;
typedef u64 Bits;
struct Four {
  Sum x, y, z, w;
};
struct Two {
  Sum x, y;
};
const Sum NEVER = -(1ll << 60);
#define BLOCKS_PER_MULTIPROCESSOR 1
#else
typedef i32 Sum;
typedef u32 Bits;
typedef int4 Four;
typedef int2 Two;
const Sum NEVER = -(1 << 30);
#define BLOCKS_PER_MULTIPROCESSOR 2
#endif

#if FLOATS
INLINE Sum plus(Sum a, Sum b) { return a + b; }
INLINE Sum minus(Sum a, Sum b) { return a - b; }
INLINE float larger(float a, float b) { return fmaxf(a, b); }
INLINE float smaller(float a, float b) { return fminf(a, b); }
INLINE Sum later(Sum a, Sum b) { return fmaxf(a, b); }
INLINE Sum earlier(Sum a, Sum b) { return fminf(a, b); }
#else
// Sums may wrap; differences of nearby prefix sums are still right.
INLINE Sum plus(Sum a, Sum b) { return (Sum)((Bits)a + (Bits)b); }
INLINE Sum minus(Sum a, Sum b) { return (Sum)((Bits)a - (Bits)b); }
INLINE Sum later(Sum a, Sum b) { return plus(a, larger(minus(b, a), (Sum)0)); }
INLINE Sum earlier(Sum a, Sum b) { return plus(a, smaller(minus(b, a), (Sum)0)); }
#endif

INLINE Sum warp_before(Sum own, Sum& total) {
  Sum sum = own;
  u32 lane = threadIdx.x % 32;
  for (u32 lanes = 1; lanes < 32; lanes *= 2) {
    Sum other = __shfl_up_sync(0xffffffff, sum, lanes);
    if (lane >= lanes) sum = plus(sum, other);
  }
  total = __shfl_sync(0xffffffff, sum, 31);
  return minus(sum, own);
}

// Prefix sums and, for runs of 2, 4, 8 ... of them, the largest and (from runs of 8 on) the smallest. The two halves
// of each chunk lie in separate arrays, so that adjacent threads access adjacent words; the gap puts the arrays on
// different banks.
const u32 GAP = 16;
struct Pyramid {
  Sum* sums;
  u32 length;

  INLINE Sum* half(u32 chunk, u32 which) const { return sums + which * (length / 2 + GAP) + chunk * (CHUNK / 2); }
  INLINE Sum& at(u32 x) const { return half(x / CHUNK, x / (CHUNK / 2) % 2)[x % (CHUNK / 2)]; }
  INLINE Sum* most(u32 level) const { return sums + 2 * GAP + 2 * length - (2 * length >> level); }
  INLINE Sum* least(u32 level) const { return most(level) + length / 4; }
};

// Loads consecutive shared-memory words with the widest access.
template <u32 COUNT> INLINE void load(const Sum* from, Sum (&values)[COUNT]) {
  if constexpr (SUM_BITS == 32 && COUNT % 4 == 0) {
    for (u32 i = 0; i < COUNT; i += 4) {
      Four word = *(const Four*)(from + i);
      values[i] = word.x, values[i + 1] = word.y, values[i + 2] = word.z, values[i + 3] = word.w;
    }
  } else if constexpr (SUM_BITS == 32 && COUNT % 2 == 0) {
    for (u32 i = 0; i < COUNT; i += 2) {
      Two word = *(const Two*)(from + i);
      values[i] = word.x, values[i + 1] = word.y;
    }
  } else {
    for (u32 i = 0; i < COUNT; i++) values[i] = from[i];
  }
}
template <u32 COUNT> INLINE void store(Sum* to, const Sum (&values)[COUNT]) {
  if constexpr (SUM_BITS == 32 && COUNT % 4 == 0) {
    for (u32 i = 0; i < COUNT; i += 4)
      *(Four*)(to + i) = Four{values[i], values[i + 1], values[i + 2], values[i + 3]};
  } else if constexpr (SUM_BITS == 32 && COUNT % 2 == 0) {
    for (u32 i = 0; i < COUNT; i += 2) *(Two*)(to + i) = Two{values[i], values[i + 1]};
  } else {
    for (u32 i = 0; i < COUNT; i++) to[i] = values[i];
  }
}

INLINE void load_chunk(const Pyramid& pyramid, u32 chunk, Sum (&values)[CHUNK]) {
  Sum low[CHUNK / 2], high[CHUNK / 2];
  load(pyramid.half(chunk, 0), low);
  load(pyramid.half(chunk, 1), high);
  for (u32 i = 0; i < CHUNK / 2; i++) values[i] = low[i], values[CHUNK / 2 + i] = high[i];
}
INLINE void store_chunk(const Pyramid& pyramid, u32 chunk, const Sum (&values)[CHUNK]) {
  Sum low[CHUNK / 2], high[CHUNK / 2];
  for (u32 i = 0; i < CHUNK / 2; i++) low[i] = values[i], high[i] = values[CHUNK / 2 + i];
  store(pyramid.half(chunk, 0), low);
  store(pyramid.half(chunk, 1), high);
}

// A thread's sum of differences and, for floats, the sum of their absolute values.
struct Filled {
  Sum sum;
#if FLOATS
  float size;
#endif
};

#if FLOATS
typedef float Centre;

// Returns the replacement of a non-finite sample of the tile: that of `Repaired` for the sample's window.
INLINE float replacement(const Series& series, const Noise* own, const Noise* carried, const Tile& tile, u32 place,
                         u32 windows_here) {
  u32 which = smaller(place / series.window, windows_here - 1);
  Repaired repaired(series, own, carried, tile.dm, tile.j + which);
  return place - which * series.window < series.reach ? repaired.before : repaired.now;
}
#else
typedef i32 Centre;
#endif

// Fills the pyramid's base with the samples less `centre`, 0 past the end; each warp fills one stretch.
template <class Mend>
INLINE Filled fill(const Pyramid& pyramid, const Series& series, const Tile& tile, u32 available, u32 stretch,
                   Centre centre, Mend mend) {
  const u32 AHEAD = 4;
  u32 first = threadIdx.x / 32 * stretch;
  Row row = series.row(tile.dm, tile.j);
  Filled filled = {};
  Sum* to = &pyramid.at(first + threadIdx.x % 32);
  row.with_place(tile.start + first, tile.start + first + stretch, [&](auto sample) {
    for (u32 x = first + threadIdx.x % 32; x < first + stretch; x += 32 * AHEAD) {
      Sample values[AHEAD];
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) {
        u32 place = tile.start + x + k * 32;
        values[k] = place < available ? sample(place) : centre;
      }
#pragma unroll
      for (u32 k = 0; k < AHEAD; k++) {
        mend(values[k], tile.start + x + k * 32);
        Sum difference = (Sum)values[k] - (Sum)centre;
        filled.sum = plus(filled.sum, difference);
#if FLOATS
        filled.size += fabsf(difference);
#endif
        // Four chunks further.
        to[k * 32 / 2] = difference;
      }
      to += AHEAD * 32 / 2;
    }
  });
  return filled;
}

// Returns the sum over all threads of the preceding warps.
INLINE Sum sum_before(Sum sum) {
  __shared__ Sum totals[WARPS];
  for (i32 lanes = 16; lanes > 0; lanes /= 2) sum = plus(sum, __shfl_xor_sync(0xffffffff, sum, lanes));
  if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = sum;
  __syncthreads();
  Sum before = 0;
  for (u32 other = 0; other < threadIdx.x / 32; other++) before = plus(before, totals[other]);
  return before;
}

// Replaces samples by prefix sums and builds the first levels of the pyramid. `before` is the sum before the warp's
// stretch.
INLINE void accumulate(const Pyramid& pyramid, u32 stretch, Sum before) {
  u32 first = threadIdx.x / 32 * stretch / CHUNK, last = first + stretch / CHUNK;
  for (u32 round = first; round < last; round += 32) {
    u32 chunk = round + threadIdx.x % 32;
    bool has = chunk < last;
    Sum q[CHUNK] = {}, total = 0, sum = 0;
    if (has) load_chunk(pyramid, chunk, q);
    for (u32 i = 0; i < CHUNK; i++) {
      Sum value = q[i];
      q[i] = sum;
      sum = plus(sum, value);
    }
    Sum base = plus(before, warp_before(sum, total));
    before = plus(before, total);
    if (!has) continue;
    Sum two[4], four[2];
    for (u32 i = 0; i < 4; i++) two[i] = larger(q[2 * i], q[2 * i + 1]);
    for (u32 i = 0; i < 2; i++) four[i] = larger(two[2 * i], two[2 * i + 1]);
    Sum most = larger(four[0], four[1]), least = q[0];
    for (u32 i = 1; i < CHUNK; i++) least = smaller(least, q[i]);
    for (u32 i = 0; i < CHUNK; i++) q[i] = plus(q[i], base);
    for (u32 i = 0; i < 4; i++) two[i] = plus(two[i], base);
    for (u32 i = 0; i < 2; i++) four[i] = plus(four[i], base);
    store_chunk(pyramid, chunk, q);
    store(pyramid.most(1) + chunk * 4, two);
    store(pyramid.most(2) + chunk * 2, four);
    pyramid.most(3)[chunk] = plus(most, base);
    pyramid.least(3)[chunk] = plus(least, base);
  }
}

// Returns the largest excess over the threshold for boxcars of four widths that start in one of COUNT runs. `ends`
// holds the largest sums from four runs on, `starts` the smallest; both relative to `base`.
template <u32 COUNT>
INLINE Sum excess_of(const Sum (&ends)[COUNT + 3], const Sum (&starts)[COUNT], const Sum* offsets) {
  Sum excess = NEVER;
  for (u32 i = 0; i < COUNT; i++) {
    Sum best = ends[i] + offsets[0];
    for (u32 k = 1; k < 4; k++) best = larger(best, ends[i + k] + offsets[k]);
    excess = larger(excess, best - starts[i]);
  }
  return excess;
}

template <u32 COUNT> INLINE void rebase(Sum (&values)[COUNT], Sum base) {
  for (u32 i = 0; i < COUNT; i++) values[i] = minus(values[i], base);
}

// Negated thresholds of a window, less the centre's contribution.
typedef Sum Offsets[TILE_WIDTHS];

// Returns whether a boxcar of up to 56 samples that starts in the chunk may exceed its threshold.
INLINE bool may_hit(const Pyramid& pyramid, u32 chunk, const Sum* offsets) {
  Sum p[2 * CHUNK];
  Sum own[CHUNK], next[CHUNK];
  load_chunk(pyramid, chunk, own);
  load_chunk(pyramid, chunk + 1, next);
  for (u32 i = 0; i < CHUNK; i++) p[i] = own[i], p[CHUNK + i] = next[i];
  Sum base = p[0], excess = NEVER;
  rebase(p, base);
  for (u32 s = 0; s < CHUNK; s++) {
    Sum best = p[s + 1] + offsets[0];
    for (u32 width = 2; width < 8; width++) best = larger(best, p[s + width] + offsets[width - 1]);
    excess = larger(excess, best - p[s]);
  }
  Sum two[4], four[2], eight[1];
  for (u32 i = 0; i < 4; i++) two[i] = smaller(p[2 * i], p[2 * i + 1]);
  for (u32 i = 0; i < 2; i++) four[i] = smaller(two[2 * i], two[2 * i + 1]);
  eight[0] = smaller(four[0], four[1]);
  Sum ends[8];
  load(pyramid.most(1) + chunk * 4 + 4, ends);
  rebase(ends, base);
  Sum level[7];
  for (u32 i = 0; i < 7; i++) level[i] = ends[i];
  excess = larger(excess, excess_of<4>(level, two, offsets + 7));
  Sum pairs[6], near[5], far[4];
  load(pyramid.most(2) + chunk * 2 + 4, pairs);
  for (u32 i = 0; i < 5; i++) near[i] = minus(pairs[i], base);
  excess = larger(excess, excess_of<2>(near, four, offsets + 11));
  for (u32 i = 0; i < 4; i++) far[i] = minus(pyramid.most(3)[chunk + 4 + i], base);
  return larger(excess, excess_of<1>(far, eight, offsets + 15)) >= 0;
}

// Builds a level of the pyramid from the one below and tests its runs.
INLINE void climb(const Pyramid& pyramid, u32 level, u32 starts, u32 window_log, const Offsets* offsets, u32* flags) {
  Sum *most = pyramid.most(level), *least = pyramid.least(level);
  const Sum *finer_most = pyramid.most(level - 1), *finer_least = pyramid.least(level - 1);
  for (u32 i = threadIdx.x; i < pyramid.length >> level; i += THREADS) {
    most[i] = later(finer_most[2 * i], finer_most[2 * i + 1]);
    least[i] = earlier(finer_least[2 * i], finer_least[2 * i + 1]);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < starts >> level; i += THREADS) {
    Sum ends[4], begin[1] = {0};
    for (u32 k = 0; k < 4; k++) ends[k] = minus(most[i + 4 + k], least[i]);
    const Sum* of_window = offsets[i << level >> window_log];
    if (excess_of<1>(ends, begin, of_window + 4 * level + 3) < 0) continue;
    u32 first = (i << level) / BLOCK, last = ((i + 1) << level) / BLOCK;
    for (u32 block = first; block < larger(last, first + 1); block++) atomicMax(&flags[block], 1u);
  }
}

#if FLOATS
// A window is loud if its tile's absolute differences exceed LOUD deviations per sample or MOST_SIZE in sum, beyond
// which single precision is unreliable. All blocks of a loud window are flagged.
const float LOUD = 1048576.0f, MOST_SIZE = 1e30f;

// Bounds the difference between the host's sum of a boxcar and the tile's, where the tile's absolute differences sum
// to `size`. A prefix sum of the tile is the result of at most 64 additions, after one subtraction per sample. The
// host adds once per sample; its sums are at most the absolute sum of the window so far, none of whose tiles is loud.
INLINE double doubt(const Noise& noise, float centre, float size, u32 width, u32 samples) {
  const double SINGLE = 5.9604644775390625e-8, DOUBLE = 1.1102230246251565e-16;
  double mean = noise.mean < 0.0 ? -noise.mean : noise.mean, far = centre < 0.0f ? -centre : centre;
  double before = samples * (far + mean + 2.0 * LOUD * noise.sigma) + size;
  return 160.0 * SINGLE * size + (width + 2) * DOUBLE * before * 1.01;
}

INLINE Sum offset_of(const Noise& noise, double snr, u32 widths, u32 index, float centre, float size, u32 samples) {
  u32 width = width_of(index), used = widths <= 7 ? widths : 7 + parts(widths - 7, 4u) * 4;
  double least = Threshold(noise, snr, width).least - (double)centre * width;
  double rounding = 1e-6 * (least < 0.0 ? -least : least);
  return index < used ? (Sum)(doubt(noise, centre, size, width, samples) + rounding - least) : NEVER;
}
#else
INLINE Sum offset_of(const Noise& noise, double snr, u64 range, u32 widths, u32 index, i32 centre) {
  u32 width = width_of(index);
  double least = Threshold(noise, snr, width).least - (double)((i64)centre * width);
  double most = (double)(range * width + 1);
  least = smaller(larger(least, -most), most);
  // All widths of the last octave are tested.
  u32 used = widths <= 7 ? widths : 7 + parts(widths - 7, 4u) * 4;
  return index < used ? -(Sum)least : NEVER;
}
#endif

#if FLOATS
#define OWN_PARAMETERS u32 *loud
#else
#define OWN_PARAMETERS u64 range
#endif

// The differences of all windows of a tile use the first window's mean as centre; any representable value is correct.
KERNEL __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    screen(SERIES_PARAMETERS, const Noise* own, const Noise* carried, u32* words, double snr, OWN_PARAMETERS, u32 tiles,
           u32 starts, u32 length, u32 widths, u32 tile_windows) {
  SHARED_MEMORY(memory);
  __shared__ Offsets offsets[TILE_WINDOWS];
  __shared__ u32 flags[MOST_BLOCKS];
  Series series = SERIES;
  Tile tile(windows, tiles, starts, tile_windows);
  u32 here = smaller(tile_windows, windows - tile.j), window_log = 31 - __clz((i32)window);
  Noise nearest = series.noise(own, carried, tile.dm, tile.j);
  if (threadIdx.x < MOST_BLOCKS) flags[threadIdx.x] = 0;
  bool is_void = tile.start >= series.samples(tile.dm, tile.j) || (tile_windows == 1 && nearest.sigma == 0.0);
  if (!is_void) {
    Pyramid pyramid{(Sum*)memory, length};
    u32 stretch = length / WARPS, available = series.available(tile.dm, tile.j, tile_windows);
#if FLOATS
    __shared__ float sizes[WARPS];
    float centre = (float)nearest.mean;
    Filled filled = fill(pyramid, series, tile, available, stretch, centre, [&](float& y, u32 place) {
      if (!is_finite(y)) y = replacement(series, own, carried, tile, place, here);
    });
    for (i32 lanes = 16; lanes > 0; lanes /= 2) filled.size += __shfl_xor_sync(0xffffffff, filled.size, lanes);
    if (threadIdx.x % 32 == 0) sizes[threadIdx.x / 32] = filled.size;
    Sum before = sum_before(filled.sum);
    float size = 0.0f;
    for (u32 warp = 0; warp < WARPS; warp++) size += sizes[warp];
#else
    i32 centre = (i32)rounded(nearest.mean);
    Filled filled = fill(pyramid, series, tile, available, stretch, centre, [](i32&, u32) {});
    Sum before = sum_before(filled.sum);
#endif
    for (u32 i = threadIdx.x; i < tile_windows * TILE_WIDTHS; i += THREADS) {
      u32 which = i / TILE_WIDTHS, index = i % TILE_WIDTHS;
      Noise noise = which < here ? series.noise(own, carried, tile.dm, tile.j + which) : Noise{0.0, 0.0};
#if FLOATS
      bool is_searched = noise.sigma > 0.0;
      u32 samples = window + reach;
      offsets[which][index] = is_searched ? offset_of(noise, snr, widths, index, centre, size, samples) : NEVER;
      bool is_loud = !(size <= LOUD * (float)noise.sigma * (float)length && size < MOST_SIZE);
      if (index == 0 && is_searched && is_loud) loud[tile.dm * windows + tile.j + which] = 1;
#else
      offsets[which][index] = noise.sigma != 0.0 ? offset_of(noise, snr, range, widths, index, centre) : NEVER;
#endif
    }
    accumulate(pyramid, stretch, before);
    __syncthreads();
    for (u32 chunk = threadIdx.x; chunk < starts / CHUNK; chunk += THREADS)
      if (may_hit(pyramid, chunk, offsets[chunk * CHUNK >> window_log])) atomicMax(&flags[chunk * CHUNK / BLOCK], 1u);
    for (u32 level = 4; 4 * level + 3 < widths; level++) climb(pyramid, level, starts, window_log, offsets, flags);
  }
  __syncthreads();
  u32 word_blocks = smaller(smaller(starts, window) / BLOCK, 32u);
  u32 count = tile_windows > 1 ? here * (window / BLOCK / word_blocks) : starts / BLOCK / word_blocks;
  write_flags(flags, words + tile.word, count, word_blocks);
}
