// First half of a long transform: windowed sums and their transform over the high part of the sample index.
//   POINTS = FIRST x LINE, FIRST = RADIX x SIDE; c = c1 LINE + c2, m = k1 + FIRST k2
//   z_s[k1][c2] = W_POINTS^(c2 k1) sum_{c1} y_s[c1 LINE + c2] W_FIRST^(c1 k1)
//
// A block owns GROUP neighbouring values of c2 and computes batches of SPECTRA consecutive spectra, so it loads its
// taps and factors once.
//  1. Each thread owns two values of c2 and RADIX values of c1, SIDE apart. It computes their windowed sums and the
//     transform over these c1 in registers.
//  2. Each thread transforms one column of one spectrum over the other SIDE values of c1, applies the twiddle factors
//     and stores it.
// Asynchronous copies prefetch the next samples while the current batch is transformed.
#include "fft.cuh"
#include "fir.cuh"

constexpr int FIRST = RADIX * SIDE, LINE = POINTS / FIRST, PAIRS = GROUP / 2;
// Words per row of samples and per line.
constexpr int WORDS = POINTS / 2, LINE_WORDS = LINE / 2;
// Whether a thread keeps its taps in registers across batches.
#ifndef HOLDS_TAPS
#define HOLDS_TAPS (TAPS * RADIX <= MOST_HELD)
#endif
constexpr int HELD_TAPS = TAPS <= MOST_HELD ? TAPS : 1;
// Values of a spectrum per row of the block, and per block.
constexpr int ROW = SIDE * GROUP, OWN = RADIX * ROW;
// 16-byte copies per row of samples and c1.
constexpr int COPIES_EACH = PAIRS * (int)sizeof(Word) / 16;
static_assert(THREADS == SIDE * PAIRS && LINE % GROUP == 0 && COPIES_EACH > 0, "threads share the columns");

struct Split {
  // Samples, taps and output of the block's group of columns, from the pass's first spectrum on.
  const Word* samples;
  const float2* taps;
  float2* output;
  u64 spectrum_values;
};

// Starts the copies of the first NEAR rows of the batch that begins at `row`.
template <int NEAR> INLINE void ask(const Word* row, Word* words) {
  constexpr int ALL = NEAR * FIRST * COPIES_EACH;
#pragma unroll 4
  for (int i = threadIdx.x; i < ALL; i += THREADS) {
    const int piece = i % COPIES_EACH, line = i / COPIES_EACH % FIRST, k = i / COPIES_EACH / FIRST;
    copy_async_16(shared_address(words) + 16 * i, (const u8*)(row + (u64)k * WORDS + line * LINE_WORDS) + 16 * piece);
  }
  copy_async_commit();
}

template <int SPECTRA, int NEAR>
INLINE void sum_windows(float4 (&sums)[RADIX][SPECTRA], const Split& s, float2 (&held)[HOLDS_TAPS ? RADIX : 1][HELD_TAPS],
                        const Word* near, const Word* far) {
#pragma unroll
  for (int r = 0; r < RADIX; r++) {
#pragma unroll
    for (int j = 0; j < SPECTRA; j++) sums[r][j] = make_float4(0.f, 0.f, 0.f, 0.f);
    const int column = r * SIDE * LINE_WORDS;
    const Column<NEAR> source = {near + r * THREADS, far + column, s.taps + column, WORDS, WORDS, RADIX * THREADS};
    if constexpr (SPECTRA == 1)
      filter_one(sums[r][0], source);
    else if constexpr (HOLDS_TAPS)
      filter_held<SPECTRA, NEAR, false>(sums[r], held[r], source);
    else if constexpr (TAPS <= MOST_HELD) {
      float2 taps[TAPS];
      filter_held<SPECTRA, NEAR, true>(sums[r], taps, source);
    } else
      filter_ring<SPECTRA, NEAR>(sums[r], source);
  }
}

// Transforms and stores the columns of the spectra from `start` on, except the first `skipped`.
template <int SPECTRA>
INLINE void store_columns(const Split& s, const float2* rows, const float2* twiddles, const float4* factors, u32 start, u32 skipped) {
  constexpr int ALL = SPECTRA * RADIX * GROUP;
#pragma unroll
  for (int round = 0; round < (ALL + THREADS - 1) / THREADS; round++) {
    const int index = round * THREADS + threadIdx.x;
    if (ALL % THREADS != 0 && index >= ALL) return;
    const int c = index % GROUP, row = index / GROUP, a = row % RADIX, j = row / RADIX;
    float2 v[SIDE];
#pragma unroll
    for (int i = 0; i < SIDE; i++) v[i] = rows[row * ROW + reversed<SIDE>(i) * GROUP + c];
    if constexpr (RADIX == 1)
      transform<SIDE>(v);
    else
      twiddled_transform<SIDE>(v, factors + a * (SIDE / 4), 1);
    if (j < (int)skipped) continue;
    float2* to = s.output + (u64)(start + j) * s.spectrum_values + a * LINE + c;
    const float2* twiddle = twiddles + a * GROUP + c;
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
      const float2 w = twiddle[i * RADIX * GROUP];
      to[i * RADIX * LINE] = make_float2(v[i].x * w.x - v[i].y * w.y, v[i].x * w.y + v[i].y * w.x);
    }
  }
}

template <int SPECTRA, int NEAR>
INLINE void make_columns(const Split& s, const float2* twiddles_of_group, const float4* all_factors, u32 first, u32 end,
                         unsigned char* memory) {
  float2* rows = (float2*)memory;
  float2* twiddles = rows + SPECTRA * OWN;
  float4* factors = (float4*)(twiddles + OWN);
  Word* words = (Word*)(factors + (RADIX > 1 ? RADIX * SIDE / 4 : 0));
  const int thread = threadIdx.x, line = thread / PAIRS, pair = thread % PAIRS;
  const Word* samples = s.samples + line * LINE_WORDS + pair;
  Split own = s;
  own.taps += line * LINE_WORDS + pair;
  u32 start = first + SPECTRA > end ? end - SPECTRA : first;
  if constexpr (NEAR > 0) ask<NEAR>(s.samples + (u64)start * WORDS, words);
  for (int i = thread; i < OWN / 2; i += THREADS) ((float4*)twiddles)[i] = ((const float4*)twiddles_of_group)[i];
  if constexpr (RADIX > 1)
    for (int i = thread; i < RADIX * SIDE / 4; i += THREADS) factors[i] = all_factors[i];
  float2 held[HOLDS_TAPS ? RADIX : 1][HELD_TAPS];
  if constexpr (HOLDS_TAPS && SPECTRA > 1) {
#pragma unroll
    for (int r = 0; r < RADIX; r++)
#pragma unroll
      for (int t = 0; t < TAPS; t++) held[r][t] = __ldg(own.taps + r * SIDE * LINE_WORDS + t * WORDS);
  }
#pragma unroll 1
  while (first < end) {
    if constexpr (NEAR > 0) copy_async_wait<0>();
    __syncthreads();
    float4 sums[RADIX][SPECTRA];
    sum_windows<SPECTRA, NEAR>(sums, own, held, words + thread, samples + (u64)start * WORDS);
    // All samples in shared memory and all rows of the previous batch have been read.
    __syncthreads();
    const u32 now = start, skipped = first - start;
    first = now + SPECTRA;
    start = first + SPECTRA > end ? end - SPECTRA : first;
    store_transforms<OWN, ROW>(sums, rows + line * GROUP + 2 * pair);
    // The copies start only here, because the sums leave no registers for their addresses earlier.
    if constexpr (NEAR > 0)
      if (first < end) ask<NEAR>(s.samples + (u64)start * WORDS, words);
    __syncthreads();
    store_columns<SPECTRA>(own, rows, twiddles, factors, now, skipped);
  }
}

// blockIdx.x is the group of columns, y the share of the spectra, z the stream, counted from the first polarization
// of `first_unit`; a unit is one antenna's recorded channel, in output order.
#define PARAMETERS                                                                                                       \
  const u8 *input, u64 stride, const float2 *coefficients, const float2 *twiddles, const float4 *factors, float2 *output,    \
      u32 spectra, u32 share, u32 first_unit, u32 coarse_channels, u32 polarizations, u32 reverses

template <int SPECTRA, int NEAR> INLINE void split_sums(PARAMETERS, unsigned char* memory) {
  const u32 unit = first_unit + blockIdx.z / polarizations;
  const u32 antenna = unit / coarse_channels, place = unit % coarse_channels;
  const u32 coarse = reverses ? coarse_channels - 1 - place : place;
  const u64 stream = ((u64)antenna * coarse_channels + coarse) * polarizations + blockIdx.z % polarizations;
  const u32 group = blockIdx.x;
  const Split s = {(const Word*)(input + stream * stride) + group * PAIRS, coefficients + group * PAIRS,
                   output + (u64)blockIdx.z * POINTS + group * GROUP, (u64)gridDim.z * POINTS};
  const u32 first = blockIdx.y * share, end = smaller(first + share, spectra);
  make_columns<SPECTRA, NEAR>(s, twiddles + group * OWN, factors, first, end, memory);
}
#define NAMES \
  input, stride, coefficients, twiddles, factors, output, spectra, share, first_unit, coarse_channels, polarizations, reverses

KERNEL __launch_bounds__(THREADS, RESIDENT) split_sums_batches(PARAMETERS) {
  SHARED_MEMORY(memory);
  split_sums<BATCH, PREFETCHED>(NAMES, memory);
}

// Kernel for launches shorter than a batch: one spectrum at a time, bit-identical values.
KERNEL __launch_bounds__(THREADS, 1) split_sums_single(PARAMETERS) {
  SHARED_MEMORY(memory);
  split_sums<1, 0>(NAMES, memory);
}
