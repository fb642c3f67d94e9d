// Variant for blocks of a cluster, used when a single block's shared memory fits only one or two spectra. Each block
// owns PARTS x SIDE^2 columns, holds their taps in registers, and computes windowed sums of BATCH spectra. It sends
// each sum to the block that transforms the spectrum; each block transforms OWN spectra, as a single block does.
//  - A block's rows are free when all blocks have read their values of the previous batch. A cluster barrier signals
//    this: each thread arrives after its last read and waits before it sends its first sum of the next batch.
//  - A block's rows are full when all their bytes have arrived; an mbarrier in its shared memory counts the bytes.
#pragma once

constexpr int PARTS = RADIX / CLUSTER, OWN = BATCH / CLUSTER;
constexpr int SPECTRUM_BYTES = RADIX * Shape<BATCH>::PITCH * 8;
static_assert(POLARIZATIONS == 1 && PASSES == 1 && SIDE == 32 && FORM != FORM_DETECTED && HOLDS_TAPS, "what clusters make");
static_assert(PARTS * CLUSTER == RADIX && OWN * CLUSTER == BATCH && OWN * RADIX * SIDE == THREADS, "blocks share the work");
static_assert(PREFETCHED <= 32, "a warp asks for rows");

// Destination of a thread's sums of one part: shared-memory address of its rows, equal in all blocks, and the
// mbarrier.
struct Targets {
  u32 own, barrier;
  INLINE void send(int spectrum, float4 sum) const {
    const u32 to = own + spectrum / CLUSTER * SPECTRUM_BYTES, rank = spectrum % CLUSTER;
    cluster_store_counted(cluster_address(to, rank), sum, cluster_address(barrier, rank));
  }
};

// Returns the spectrum of the `i`th sum sent. Sends are half a batch late, and their order is rotated by rank within
// each half, so that blocks that run in step send to different blocks.
template <int ROTATION> INLINE constexpr int sent_at(int i) {
  constexpr int HALF = BATCH / 2;
  return i / HALF * HALF + (i + ROTATION) % HALF;
}

// Computes the windowed sums of one column and sends them to the blocks that transform them.
template <int ROTATION>
INLINE void filter_sent(float2 (&taps)[TAPS], const Column<PREFETCHED>& column, const Targets& targets, bool is_first) {
  constexpr int ROWS = TAPS + BATCH - 1, DELAY = ROTATES ? BATCH / 2 : 0;
  float4 sums[BATCH];
  Rows<PREFETCHED> rows;
  rows.start(column, ROWS);
#pragma unroll
  for (int k = 0; k < ROWS; k++) {
    const bool is_last = k + AHEAD < PREFETCHED || k + AHEAD >= ROWS;
    const float4 x = rows.take(column, k, k < PREFETCHED, is_last);
    if (k < BATCH) sums[k] = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (k - j >= 0 && k - j < TAPS) add_product(sums[j], taps[k - j], x);
    const int next = k - (TAPS - 1) - DELAY;
    if (is_first && next == 0) cluster_wait();
    if (next >= 0) targets.send(ROTATES ? sent_at<ROTATION>(next) : next, sums[ROTATES ? sent_at<ROTATION>(next) : next]);
  }
#pragma unroll
  for (int next = BATCH - DELAY; next < BATCH; next++) targets.send(sent_at<ROTATION>(next), sums[sent_at<ROTATION>(next)]);
}

template <int ROTATION>
INLINE void filter_parts(float2 (&held)[PARTS][TAPS], const Word* near, const Word* far, const Targets& targets) {
#pragma unroll
  for (int p = 0; p < PARTS; p++) {
    const Column<PREFETCHED> column = {near + p * COLUMNS, far + p * COLUMNS, nullptr, WORDS, WORDS, PARTS * COLUMNS};
    filter_sent<ROTATION>(held[p], column, {targets.own + p * Shape<BATCH>::PITCH * 8, targets.barrier}, p == 0);
  }
}

// Selects the instantiation for a rank; the sending order must be a compile-time constant.
template <int ROTATION>
INLINE void filter_rotated(u32 rank, float2 (&held)[PARTS][TAPS], const Word* near, const Word* far, const Targets& targets) {
  if (!ROTATES || rank == ROTATION) return filter_parts<ROTATION>(held, near, far, targets);
  if constexpr (ROTATES && ROTATION + 1 < CLUSTER) filter_rotated<ROTATION + 1>(rank, held, near, far, targets);
}

// Starts the bulk copies of this block's columns of a batch's first rows; called by one warp, after `end_near_reads` by
// all threads and a block barrier.
INLINE void prefetch_columns(const Arguments& a, const Batch& batch, u32 rank, Word* words, u32 barrier) {
  constexpr u32 BYTES = PARTS * COLUMNS * sizeof(Word);
  if (threadIdx.x == 0) barrier_expect(barrier, PREFETCHED * BYTES);
  __syncwarp();
  if (threadIdx.x < PREFETCHED)
    bulk_load(shared_address(words + threadIdx.x * PARTS * COLUMNS),
              samples_of(a, batch, 0) + (u64)threadIdx.x * WORDS + rank * PARTS * COLUMNS, BYTES, barrier);
}

INLINE void make_spectra_cluster(const Arguments& a, unsigned char* memory) {
  constexpr int PITCH = Shape<BATCH>::PITCH;
  float2* rows = (float2*)memory;
  float4* line_factors = (float4*)(rows + OWN * RADIX * PITCH);
  float4* row_factors = line_factors + POINTS / 4;
  Word* words = (Word*)(row_factors + RADIX * SIDE / 4);
  const u32 near_barrier = shared_address(words + PREFETCHED * PARTS * COLUMNS), full_barrier = near_barrier + 8;
  const u32 rank = cluster_rank(), step = gridDim.x / CLUSTER;
  const int thread = threadIdx.x, lane = thread % SIDE, row = thread / SIDE;
  for (int i = thread; i < POINTS / 4 + RADIX * SIDE / 4; i += THREADS) line_factors[i] = a.factors[i];
  u32 item = blockIdx.x / CLUSTER, parity = 0;
  if (thread == 0) {
    barrier_init(near_barrier, 1);
    barrier_init(full_barrier, 1);
    barrier_init_fence();
  }
  if (PREFETCHED > 0 && thread < 32) prefetch_columns(a, batch_at<BATCH>(a, item, 0), rank, words, near_barrier);
  const int first = rank * PARTS * COLUMNS + thread;
  float2 held[PARTS][TAPS];
#pragma unroll
  for (int p = 0; p < PARTS; p++)
#pragma unroll
    for (int t = 0; t < TAPS; t++) held[p][t] = __ldg((const float2*)a.coefficients + first + p * COLUMNS + t * WORDS);
  __syncthreads();
  cluster_arrive();
  float2* own = rows + 2 * thread;
  const Targets targets = {shared_address(own + rank * PARTS * PITCH), full_barrier};
#pragma unroll 1
  for (; item < a.items; item += step) {
    const Batch batch = batch_at<BATCH>(a, item, 0);
    if (PREFETCHED > 0) barrier_wait(near_barrier, parity);
    filter_rotated<0>(rank, held, words + thread, samples_of(a, batch, 0) + first, targets);
    if (thread == 0) barrier_expect(full_barrier, OWN * RADIX * SIDE * SIDE * 8);
    barrier_wait(full_barrier, parity);
    parity ^= 1;
    float4 sums[RADIX][OWN];
#pragma unroll
    for (int j = 0; j < OWN; j++)
#pragma unroll
      for (int r = 0; r < RADIX; r++) sums[r][j] = *(const float4*)(own + (j * RADIX + r) * PITCH);
    store_transforms<RADIX * PITCH, PITCH>(sums, own);
    // All warps have read the samples of this batch.
    end_near_reads<PREFETCHED>();
    __syncthreads();
    if (PREFETCHED > 0 && thread < 32 && item + step < a.items)
      prefetch_columns(a, batch_at<BATCH>(a, item + step, 0), rank, words, near_barrier);
    transform_row(rows + row * PITCH + lane, row_factors + row % RADIX * (SIDE / 4), ~0u);
    __syncthreads();
    const int line = line_of(row, lane);
    const u32 spectrum = row / RADIX * CLUSTER + rank;
    const UnitOffsets offsets = {a.places[2 * batch.unit], FORM == FORM_REQUANTIZED ? a.places[2 * batch.unit + 1] : 0};
    float2 v[SIDE];
    transform_line(v, rows + (row / RADIX * RADIX + line % RADIX) * PITCH + (SIDE + 1) * (line / RADIX), line_factors + line);
    if (spectrum >= batch.skipped) write_line(a, v, batch.start + spectrum, offsets, line);
    // All values read from shared memory have been used.
    cluster_arrive_relaxed();
  }
  cluster_wait();
}
