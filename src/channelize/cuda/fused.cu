// Polyphase filter bank in one pass: windowed sums, Fourier transform and output form.
//   y_s[c] = sum_{t < TAPS} x[(s + t) POINTS + c] b[t POINTS + c],   Y_s[m] = sum_c y_s[c] exp(-2 pi i c m / POINTS)
//
// POINTS = RADIX x SIDE x SIDE with SIDE 16 or 32; c = c1 SIDE^2 + c2 SIDE + c3, m = k1 + RADIX k2 + RADIX SIDE k3. A
// block computes batches of SPECTRA consecutive spectra, of both polarizations if the products need both.
//  1. Each thread owns two neighbouring columns (values of c2 SIDE + c3) for every c1 and every spectrum. It computes
//     their windowed sums and the transform over c1 in registers, then stores SPECTRA x RADIX rows of SIDE^2 values
//     in shared memory.
//  2. SIDE lanes per row transform over c2, with twiddle exponent k1 c2 / (RADIX SIDE), and store the row with pitch
//     SIDE + 1.
//  3. SIDE lanes with neighbouring k1 + RADIX k2 transform over c3, with twiddle exponent (k1 + RADIX k2) c3 /
//     POINTS.
// If RADIX is 1, the same lanes process a row in steps 2 and 3; otherwise a block barrier separates the steps. One
// bulk copy per batch and polarization prefetches the next batch's first rows of samples while the current batch is
// transformed.
#include "forms.cuh"

template <int SPECTRA> struct Shape {
  // Rows of samples in shared memory when a batch begins.
  static constexpr int NEAR = SPECTRA == BATCH ? PREFETCHED : 0;
  static constexpr int ROWS = SPECTRA * POLARIZATIONS * RADIX, WARPS = THREADS / 32, LANES = SIDE < 32 ? SIDE : 32;
  // Rows transformed concurrently by the block.
  static constexpr int AT_ONCE = WARPS * (32 / LANES), ROUNDS = (ROWS + AT_ONCE - 1) / AT_ONCE;
  // Pitch of rows in values, padded so that lanes of neighbouring k1 + RADIX k2 hit different shared-memory banks.
  static constexpr int PITCH = SIDE * (SIDE + 1) + (RADIX == 1 ? 0 : RADIX >= 8 ? 2 : 16 / RADIX);
};

constexpr int COLUMNS = POINTS / RADIX / 2;
constexpr int PASSES = COLUMNS / THREADS;
// Whether a thread keeps its taps in registers across batches.
#ifndef HOLDS_TAPS
#define HOLDS_TAPS (TAPS * RADIX * PASSES <= MOST_HELD)
#endif
// Tap columns per thread and pass. With MIRRORS the window is symmetric and a thread's mirrored columns share taps.
constexpr int TAP_COLUMNS = MIRRORS ? RADIX / 2 : RADIX;
constexpr int HELD_COLUMNS = HOLDS_TAPS ? TAP_COLUMNS * PASSES : 1, HELD_TAPS = TAPS <= MOST_HELD ? TAPS : 1;
// Loops over a thread's columns and polarizations instead of unrolling, which would need too many registers.
[[maybe_unused]] constexpr bool LOOPS = RADIX * PASSES * POLARIZATIONS >= 4 && !HOLDS_TAPS;
// Whether the sums of one spectrum leave too few registers for prefetched samples.
[[maybe_unused]] constexpr bool WIDEST = BATCH == 1 && PREFETCHED == 0 && RADIX >= 4 && TAPS <= MOST_HELD && sizeof(Word) == 16;
// Maximum number of blocks along y and z of a grid; units are counted along y, then z.
constexpr u32 MOST_BLOCKS = 65535;
// Words per row of samples.
constexpr int WORDS = POINTS / 2;
static_assert(RADIX * SIDE * SIDE == POINTS && PASSES * THREADS == COLUMNS, "threads share the points");

// Returns batch `part` of an item. The result is uniform across the block and needs no loads or divisions, so it
// stays in uniform registers.
template <int SPECTRA> INLINE Batch batch_at(const Arguments& a, u32 item, u32 part) {
  const u32 unit = blockIdx.z * MOST_BLOCKS + blockIdx.y, first = item * a.item_spectra + part * SPECTRA;
  const u32 item_end = (item + 1) * a.item_spectra, end = item_end < a.spectra ? item_end : a.spectra;
  const u32 start = first + SPECTRA > end ? end - SPECTRA : first;
  return {unit, start, first - start};
}

INLINE const Word* samples_of(const Arguments& a, const Batch& batch, int polarization) {
  const u64 stream = (u64)batch.unit * POLARIZATIONS + polarization;
  return (const Word*)(a.input + stream * a.stride) + (u64)batch.start * WORDS;
}

// Orders this thread's reads of prefetched rows before the bulk copies that replace them, which start after the next
// block barrier. The barrier alone does not: loads may be under way while a thread waits at it, and bulk copies are
// not ordered with them.
template <int NEAR> INLINE void end_near_reads() {
  if constexpr (NEAR > 0) fence_async_shared();
}

// Starts the bulk copies of the first NEAR rows of a batch, after `end_near_reads` by all threads and a block barrier.
template <int NEAR> INLINE void prefetch(const Arguments& a, const Batch& batch, Word* words, u32 barrier) {
  constexpr u32 BYTES = NEAR * WORDS * sizeof(Word);
  barrier_expect(barrier, BYTES * POLARIZATIONS);
  for (int p = 0; p < POLARIZATIONS; p++)
    bulk_load(shared_address(words + p * NEAR * WORDS), samples_of(a, batch, p), BYTES, barrier);
}

// Enables shared taps for full batches only; with one spectrum at a time they would cost too many registers.
template <int SPECTRA> constexpr bool mirrors = MIRRORS && SPECTRA == BATCH;

// Returns a thread's first column. If taps are shared, lanes l and 31 - l own mirrored columns.
template <int SPECTRA> INLINE int column_of(int thread) {
  if (!mirrors<SPECTRA>) return thread;
  const int first = thread / 32 * 16, lane = thread % 32;
  return lane < 16 ? first + lane : COLUMNS - 1 - (first + 31 - lane);
}

// Exchanges the sums with the mirror lane.
template <int SPECTRA> INLINE void swap_mirrored(float4 (&sums)[SPECTRA]) {
#pragma unroll
  for (int j = 0; j < SPECTRA; j++) {
    const float4 sum = sums[j];
    sums[j] = make_float4(__shfl_xor_sync(~0u, sum.x, 31), __shfl_xor_sync(~0u, sum.y, 31), __shfl_xor_sync(~0u, sum.z, 31),
                          __shfl_xor_sync(~0u, sum.w, 31));
  }
}

// Computes windowed sums of this thread's columns and of their mirrored columns.
template <int SPECTRA, int NEAR>
INLINE void filter_mirrored(float4 (&sums)[RADIX][SPECTRA], const Arguments& a, float2 (&held)[HELD_COLUMNS][HELD_TAPS],
                            const Word* near, const Word* far, int at, int pass) {
#pragma unroll
  for (int r = 0; r < RADIX / 2; r++) {
    float4(&first)[SPECTRA] = sums[r], (&second)[SPECTRA] = sums[RADIX - 1 - r];
#pragma unroll
    for (int j = 0; j < SPECTRA; j++) first[j] = second[j] = make_float4(0.f, 0.f, 0.f, 0.f);
    const int column = at + r * COLUMNS, other = WORDS - 1 - column;
    const float2* taps = (const float2*)a.coefficients + column;
    const Column<NEAR> source = {near + column, far + column, taps, WORDS, WORDS, WORDS};
    const Column<NEAR> mirror = {near + other, far + other, taps, WORDS, WORDS, WORDS};
    if constexpr (HOLDS_TAPS) {
      filter_held<SPECTRA, NEAR, false>(first, held[r + pass * TAP_COLUMNS], source);
      filter_held<SPECTRA, NEAR, false, true>(second, held[r + pass * TAP_COLUMNS], mirror);
    } else {
      float2 loaded[TAPS];
      filter_held<SPECTRA, NEAR, true>(first, loaded, source);
      filter_held<SPECTRA, NEAR, false, true>(second, loaded, mirror);
    }
    swap_mirrored(second);
  }
}

// Computes the windowed sums of RADIX columns, axes [c1][spectrum], two neighbouring channels each.
template <int SPECTRA>
INLINE void filter(float4 (&sums)[RADIX][SPECTRA], const Arguments& a, float2 (&held)[HELD_COLUMNS][HELD_TAPS],
                   const Word* near, const Word* far, int at, int pass) {
  constexpr int NEAR = Shape<SPECTRA>::NEAR;
#pragma unroll
  for (int r = 0; r < (mirrors<SPECTRA> ? 0 : RADIX); r++) {
#pragma unroll
    for (int j = 0; j < SPECTRA; j++) sums[r][j] = make_float4(0.f, 0.f, 0.f, 0.f);
    const int column = at + r * COLUMNS;
    const Column<NEAR> source = {near + column, far + column, (const float2*)a.coefficients + column, WORDS, WORDS, WORDS};
    if constexpr (HOLDS_TAPS && !MIRRORS)
      filter_held<SPECTRA, NEAR, false>(sums[r], held[r + pass * RADIX], source);
    else if constexpr (SPECTRA < BATCH || WIDEST)
      filter_one(sums[r][0], source);
    else if constexpr (TAPS <= MOST_HELD) {
      float2 taps[TAPS];
      filter_held<SPECTRA, NEAR, true>(sums[r], taps, source);
    } else
      filter_ring<SPECTRA, NEAR>(sums[r], source);
  }
  if constexpr (mirrors<SPECTRA>) filter_mirrored<SPECTRA, NEAR>(sums, a, held, near, far, at, pass);
}

// Runs step 2 for one row; `own` is the lane's first value. All lanes of the row read before any lane writes.
INLINE void transform_row(float2* own, const float4* factors, u32 lanes) {
  float2 v[SIDE];
#pragma unroll
  for (int i = 0; i < SIDE; i++) v[i] = own[SIDE * reversed<SIDE>(i)];
  if constexpr (RADIX == 1)
    transform<SIDE>(v);
  else
    twiddled_transform<SIDE>(v, factors, 1);
  __syncwarp(lanes);
#pragma unroll
  for (int i = 0; i < SIDE; i++) own[(SIDE + 1) * i] = v[i];
}

// Returns the line that a lane transforms. With RADIX 16 each half warp takes half of two neighbouring k2, which lie
// in different shared-memory banks.
INLINE int line_of(int row, int lane) {
  const int place = RADIX < 16 ? lane : lane % 8 + lane / 16 * 8 + lane / 8 % 2 * 16;
  return row % RADIX * SIDE + place;
}

// Runs step 3 for one lane.
INLINE void transform_line(float2 (&v)[SIDE], const float2* line, const float4* factors) {
#pragma unroll
  for (int i = 0; i < SIDE; i++) v[i] = line[reversed<SIDE>(i)];
  twiddled_transform<SIDE>(v, factors, POINTS / SIDE);
}

template <int SPECTRA> INLINE void make_spectra(const Arguments& a, unsigned char* memory) {
  typedef Shape<SPECTRA> H;
  float2* rows = (float2*)memory;
  float4* line_factors = (float4*)(rows + H::ROWS * H::PITCH);
  float4* row_factors = line_factors + POINTS / 4;
  Word* words = (Word*)(row_factors + (RADIX > 1 ? RADIX * SIDE / 4 : 0));
  const u32 barrier = shared_address(words + POLARIZATIONS * H::NEAR * WORDS);
  // Mask of the lanes of this thread's row. If every round is full, both rows of a warp run in step and the mask
  // covers the warp.
  const u32 lanes = H::ROWS % H::AT_ONCE == 0 || SIDE == 32 ? ~0u : 0xFFFFu << (threadIdx.x & 16);
  const int thread = threadIdx.x, lane = thread % H::LANES, group = thread / H::LANES;
  for (int i = thread; i < POINTS / 4 + (RADIX > 1 ? RADIX * SIDE / 4 : 0); i += THREADS) line_factors[i] = a.factors[i];
  if constexpr (H::NEAR > 0) {
    if (thread == 0) {
      barrier_init(barrier, 1);
      barrier_init_fence();
      prefetch<H::NEAR>(a, batch_at<SPECTRA>(a, blockIdx.x, 0), words, barrier);
    }
  }
  __syncthreads();
  float2 held[HELD_COLUMNS][HELD_TAPS];
  if constexpr (HOLDS_TAPS) {
#pragma unroll
    for (int r = 0; r < TAP_COLUMNS * PASSES; r++)
#pragma unroll
      for (int t = 0; t < TAPS; t++)
        held[r][t] = __ldg((const float2*)a.coefficients + column_of<SPECTRA>(thread + r / TAP_COLUMNS * THREADS) +
                           r % TAP_COLUMNS * COLUMNS + t * WORDS);
  }
  u32 item = blockIdx.x, part = 0, parity = 0;
#pragma unroll 1
  while (item < a.items) {
    const Batch batch = batch_at<SPECTRA>(a, item, part);
    // The block's next batch.
    const bool goes_on = FORM == FORM_DETECTED && part + 1 < (item + 1 < a.items ? a.item_batches : a.last_batches);
    const u32 next_item = goes_on ? item : item + gridDim.x, next_part = goes_on ? part + 1 : 0;
    if constexpr (H::NEAR > 0) barrier_wait(barrier, parity);
    parity ^= 1;
    if constexpr (PASSES * POLARIZATIONS == 1) {
      float4 sums[RADIX][SPECTRA];
      filter<SPECTRA>(sums, a, held, words, samples_of(a, batch, 0), column_of<SPECTRA>(thread), 0);
      // All warps have read the rows of the previous batch and the samples of this one.
      end_near_reads<H::NEAR>();
      __syncthreads();
      if constexpr (H::NEAR > 0)
        if (thread == 0 && next_item < a.items)
          prefetch<H::NEAR>(a, batch_at<SPECTRA>(a, next_item, next_part), words, barrier);
      store_transforms<RADIX * H::PITCH, H::PITCH>(sums, rows + 2 * column_of<SPECTRA>(thread));
      __syncthreads();
    } else {
      __syncthreads();
#pragma unroll(LOOPS ? 1 : PASSES)
      for (int pass = 0; pass < PASSES; pass++)
#pragma unroll(LOOPS ? 1 : POLARIZATIONS)
        for (int p = 0; p < POLARIZATIONS; p++) {
          float4 sums[RADIX][SPECTRA];
          const int at = column_of<SPECTRA>(thread + pass * THREADS);
          filter<SPECTRA>(sums, a, held, words + p * H::NEAR * WORDS, samples_of(a, batch, p), at, pass);
          store_transforms<RADIX * H::PITCH, H::PITCH>(sums, rows + p * SPECTRA * RADIX * H::PITCH + 2 * at);
        }
      end_near_reads<H::NEAR>();
      __syncthreads();
      if constexpr (H::NEAR > 0)
        if (thread == 0 && next_item < a.items)
          prefetch<H::NEAR>(a, batch_at<SPECTRA>(a, next_item, next_part), words, barrier);
    }
    const UnitOffsets offsets = {a.places[2 * batch.unit], FORM == FORM_REQUANTIZED ? a.places[2 * batch.unit + 1] : 0};
    if constexpr (RADIX > 1) {
#pragma unroll
      for (int round = 0; round < H::ROUNDS; round++) {
        const int row = round * H::AT_ONCE + group;
        if (H::ROWS % H::AT_ONCE == 0 || row < H::ROWS) transform_row(rows + row * H::PITCH + lane, row_factors + row % RADIX * (SIDE / 4), lanes);
      }
      __syncthreads();
    }
#pragma unroll
    for (int round = 0; round < H::ROUNDS; round++) {
      const int row = round * H::AT_ONCE + group;
      const int spectrum = row / RADIX, line = line_of(row, lane);
      if (H::ROWS % H::AT_ONCE != 0 && row >= H::ROWS) continue;
      if constexpr (RADIX == 1) {
        transform_row(rows + row * H::PITCH + lane, row_factors, lanes);
        __syncwarp(lanes);
      }
      float2 v[SIDE];
      float2* own = rows + (spectrum * RADIX + line % RADIX) * H::PITCH + (SIDE + 1) * (line / RADIX);
      transform_line(v, own, line_factors + line);
#if FORM == FORM_DETECTED
      leave_line(v, own, spectrum, line);
#else
      if (spectrum % SPECTRA >= (int)batch.skipped)
        write_line(a, v, batch.start + spectrum % SPECTRA, offsets, line);
#endif
    }
#if FORM == FORM_DETECTED
    __syncthreads();
    add_spectra<SPECTRA, H::PITCH>(a, batch, offsets, rows);
#endif
    item = next_item;
    part = next_part;
  }
}

#define PARAMETERS                                                                                                           \
  const u8 *input, u64 stride, u8 *output, u64 row_elements, u64 product_elements, u64 *saturated, const float *coefficients,  \
      const float4 *factors, const u32 *places, const float *gains, u32 spectra, u32 row_spectra, u32 units,  \
      u32 items, u32 item_spectra, u32 item_batches, u32 last_batches
#define ARGUMENTS                                                                                                            \
  {input, stride, output, row_elements, product_elements, saturated, coefficients, factors, places, gains,      \
   spectra, row_spectra, units, items, item_spectra, item_batches, last_batches}

#if CLUSTER > 1
#include "cluster.cuh"
KERNEL CLUSTER_OF(CLUSTER) __launch_bounds__(THREADS, RESIDENT) channelize_cluster(PARAMETERS) {
  SHARED_MEMORY(memory);
  const Arguments a = ARGUMENTS;
  if (blockIdx.z * MOST_BLOCKS + blockIdx.y < units) make_spectra_cluster(a, memory);
}
#else
KERNEL __launch_bounds__(THREADS, RESIDENT) channelize(PARAMETERS) {
  SHARED_MEMORY(memory);
  const Arguments a = ARGUMENTS;
  if (blockIdx.z * MOST_BLOCKS + blockIdx.y < units) make_spectra<BATCH>(a, memory);
}
#endif

#if BATCH > 1 && CLUSTER <= 1
// Kernel for launches shorter than a batch: one spectrum at a time, bit-identical values.
KERNEL __launch_bounds__(THREADS, 1) channelize_single(PARAMETERS) {
  SHARED_MEMORY(memory);
  const Arguments a = ARGUMENTS;
  if (blockIdx.z * MOST_BLOCKS + blockIdx.y < units) make_spectra<1>(a, memory);
}
#endif
