// Exact correlation of complex 4-bit samples on Hopper; see wgmma.cu.
//
// Samples stay packed, one per byte, up to shared memory. Products use parts scaled by 16, in the high halves of
// bytes: hi = w & 0xf0f0f0f0 holds the real parts of four samples, lo = w << 4 & 0xf0f0f0f0 the imaginary parts. The
// order of time within a product is free, so 16 samples unpack to 16 bytes of hi and 16 of lo (wgmma.cuh). Rows are
// unpacked in registers, as a = (hi, lo) and a' = (lo, ~hi). Two warps unpack the columns within shared memory and
// sum their imaginary parts. Sums are scaled by 256 until the end and still fit 32 bits: 65 472 times of 2 x
// 128 x 128.
//
// A block has three warpgroups: one thread loads packed slots of rows and columns, two warps unpack, two warpgroups
// multiply.
//
// EDGE, WIDTH, SINGLE_TILE, DYNAMIC: as in wgmma.cu. An edge block of WIDTH 16 is computed transposed, like other widths.
#define SHIFT 8
#include "wgmma.cuh"

static_assert(!EDGE_COLUMNS, "wgmma_4bit_edge_columns.cu");
constexpr u32 RAW = 128 * 64;   // 128 inputs x 64 samples
// Slots of packed rows, packed columns, and unpacked columns.
constexpr u32 ROWS = SINGLE_TILE ? 6 : 8, RAWS = SINGLE_TILE ? 4 : 6, WIDES = SINGLE_TILE ? 5 : 7;
constexpr u32 ROWS_AT = WIDES * SLOT, RAWS_AT = ROWS_AT + ROWS * RAW, STAGING_AT = RAWS_AT + RAWS * RAW;
constexpr u32 SUMS_AT = STAGING_AT + (SINGLE_TILE ? 8 * STAGING : 0), ROWS_FULL = SUMS_AT + 2 * 512, ROWS_FREE = ROWS_FULL + ROWS * 8;
constexpr u32 RAWS_FULL = ROWS_FREE + ROWS * 8, RAWS_FREE = RAWS_FULL + RAWS * 8, WIDES_FULL = RAWS_FREE + RAWS * 8;
constexpr u32 WIDES_FREE = WIDES_FULL + WIDES * 8, SUMS_FULL = WIDES_FREE + WIDES * 8, SUMS_FREE = SUMS_FULL + 16;
constexpr u32 QUEUE_AT = SUMS_FREE + 16;
static_assert(QUEUE_AT + QUEUE_BYTES <= 232448, "a block's shared memory");
constexpr Layout LAYOUT = {STAGING_AT, SUMS_AT, SUMS_FULL, SUMS_FREE, QUEUE_AT};

// Producer: loads one slot of rows and one of columns per stage.
INLINE void produce(const Work& work, const TensorMap& map, const TensorMap& last, unsigned char* shared, u32 base) {
  Ring<ROWS> rows = {0, 0};
  Ring<RAWS> columns = {0, 0};
  claim_jobs(work, shared, LAYOUT.queue, [&](const TileIndex& job) {
    const bool narrow = RAGGED && job.row == work.blocks - 1;
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const u32 rows_full = base + ROWS_FULL + rows.slot * 8, full = base + RAWS_FULL + columns.slot * 8;
      barrier_wait(base + ROWS_FREE + rows.slot * 8, rows.parity ^ 1);
      barrier_expect(rows_full, RAW);
      tensor_load_3d(base + ROWS_AT + rows.slot * RAW, &map, (i32)(stage * 64), (i32)((narrow ? job.column : job.row) * 128),
                     (i32)job.channel, rows_full);
      barrier_wait(base + RAWS_FREE + columns.slot * 8, columns.parity ^ 1);
      barrier_expect(full, narrow ? WIDTH * 64 : RAW);
      tensor_load_3d(base + RAWS_AT + columns.slot * RAW, narrow ? &last : &map, (i32)(stage * 64),
                     (i32)((narrow ? job.row : job.column) * 128), (i32)job.channel, full);
      rows.advance(), columns.advance();
    }
  });
}

// Unpacks the columns, two per thread, and sums their imaginary parts.
INLINE void unpack(const Work& work, unsigned char* shared, u32 base, u32 thread) {
  Ring<RAWS> from = {0, 0};
  Ring<WIDES> to = {0, 0};
  Ring<2> sums = {0, 0};
  const bool lead = (thread & 31) == 0;
  for_each_job(work, shared, LAYOUT.queue, [&](const PublishedJob&) {
    i32 sum[2] = {0, 0};
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const unsigned char* const raw = shared + RAWS_AT + from.slot * RAW + thread * 64;
      unsigned char* const wide = shared + to.slot * SLOT + thread * 128;
      barrier_wait(base + RAWS_FULL + from.slot * 8, from.parity);
      barrier_wait(base + WIDES_FREE + to.slot * 8, to.parity ^ 1);
#pragma unroll
      for (u32 k = 0; k < 2; k++) {
        uint4 words[4];
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) words[chunk] = *(const uint4*)(raw + k * 64 * 64 + (chunk ^ (thread >> 1 & 3)) * 16);
#pragma unroll
        for (u32 chunk = 0; chunk < 4; chunk++) {
          unsigned char* const at = wide + k * 64 * 128;
          sum[k] = unpack_samples(words[chunk], at + ((2 * chunk) ^ (thread & 7)) * 16, at + ((2 * chunk + 1) ^ (thread & 7)) * 16, sum[k]);
        }
      }
      fence_async_shared();
      __syncwarp();
      if (lead) barrier_arrive(base + RAWS_FREE + from.slot * 8), barrier_arrive(base + WIDES_FULL + to.slot * 8);
      from.advance(), to.advance();
    }
    hand_over(shared, LAYOUT, sums, thread, sum);
  });
}

struct Places { Ring<ROWS> rows; Ring<WIDES> columns; };

// Multiplies the rows of this warpgroup with the columns of the job, over all stages. Takes 16 samples at a time, so
// that registers suffice for two sets of rows: one that `wgmma` reads and one being unpacked.
INLINE void multiply(Products& of, const Lane& lane, Places& at, u32 halves, const Task& task) {
  u32 raw[4], a[2][4] = {}, b[2][4] = {};
  auto load = [&](u32 slot, u32 half) {
    load_matrix_x4(raw, lane.base + ROWS_AT + slot * RAW + lane.row + ((2 * half + lane.half) ^ lane.swap) * 16);
  };
  auto full = [&](const Ring<ROWS>& slot) { barrier_wait(lane.base + ROWS_FULL + slot.slot * 8, slot.parity); };
  auto release = [&](u32 barriers, u32 slot) { if (lane.lane == 0) barrier_arrive(lane.base + barriers + slot * 8); };
  u32 old = 0, half = 0;
  full(at.rows);
  load(at.rows.slot, 0);
  // `set` is the half of a stage.
  auto step = [&](auto set_) {
    constexpr u32 set = decltype(set_)::value;
    if (set == 0) barrier_wait(lane.base + WIDES_FULL + at.columns.slot * 8, at.columns.parity);
    const u64 from = wgmma_swizzled(lane.base + at.columns.slot * SLOT) + task.column * 8 + set * 4;
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
      u32(&x)[4] = a[k];
      u32(&y)[4] = b[k];
#pragma unroll
      for (u32 q = 0; q < 2; q++) {
        const u32 word = raw[2 * k + q];
        x[q] = word & 0xf0f0f0f0u, x[2 + q] = word << 4 & 0xf0f0f0f0u;
        y[q] = x[2 + q], y[2 + q] = ~x[q];
      }
      // Forces the operands into separate registers, complete before the products begin.
#pragma unroll
      for (u32 q = 0; q < 4; q++) keep(x[q]), keep(y[q]);
      with_columns(task, [&](auto n_) {
        constexpr u32 N = decltype(n_)::value;
        wgmma_fence();
        wgmma_s8<N>(of.re, x, from + 2 * k, 1);
        wgmma_s8<N>(of.im, y, from + 2 * k, 1);
        wgmma_commit();
      });
      wgmma_wait<1>();
      // The earlier products have read their registers, which may be reused from here on.
#pragma unroll
      for (u32 q = 0; q < 4; q++) keep(a[k ^ 1][q]), keep(b[k ^ 1][q]);
    }
    if (set == 0) {
      if (half) release(WIDES_FREE, old);
      old = at.columns.slot;
    } else {
      // Both halves of the rows of this stage are in registers.
      release(ROWS_FREE, at.rows.slot);
      at.rows.advance(), at.columns.advance();
    }
    const bool more = half + 1 < halves;
    if (more && set) full(at.rows);
    if (more) load(at.rows.slot, set ^ 1);
    half++;
    return more;
  };
  while (step(Constant<0>{}) && step(Constant<1>{})) {}
  wgmma_wait<0>();
  release(WIDES_FREE, old);
  if (half & 1) release(ROWS_FREE, at.rows.slot), at.rows.advance(), at.columns.advance();
}

// Registers per thread of the first warpgroup, and of the consumer warpgroups.
constexpr u32 PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = 216;
static_assert(PRODUCER_REGISTERS + 2 * CONSUMER_REGISTERS <= REGISTERS, "a block's registers");

KERNEL __launch_bounds__(THREADS, 1) correlate_wgmma(const __grid_constant__ TensorMap map, const __grid_constant__ TensorMap last,
    u64 sums, u32 channels, u32 inputs, u32 blocks, u32 tiles,
    u32 jobs, u32 halves, u32 add, u32* claimed) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Work work = {sums, channels, inputs, blocks, tiles, jobs, halves, add, claimed};
  const u32 base = shared_address(shared);
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < ROWS; i++) barrier_init(base + ROWS_FULL + i * 8, 1), barrier_init(base + ROWS_FREE + i * 8, 8);
    for (u32 i = 0; i < RAWS; i++) barrier_init(base + RAWS_FULL + i * 8, 1), barrier_init(base + RAWS_FREE + i * 8, 2);
    for (u32 i = 0; i < WIDES; i++) barrier_init(base + WIDES_FULL + i * 8, 2), barrier_init(base + WIDES_FREE + i * 8, 8);
    for (u32 i = 0; i < 2; i++) barrier_init(base + SUMS_FULL + i * 8, 64), barrier_init(base + SUMS_FREE + i * 8, 8 * ARRIVALS);
    init_queue(base + QUEUE_AT, 10);
    barrier_init_fence();
  }
  __syncthreads();
  const u32 warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  if (warp < 4) {
    registers_fewer<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(work, map, last, shared, base);
    else if (warp >= 2) unpack(work, shared, base, threadIdx.x - 64);
  } else {
    registers_more<CONSUMER_REGISTERS>();
    const u32 row = (warp - 4) * 16, mine = row + (threadIdx.x & 15);
    const Lane lane = {base, threadIdx.x & 31, mine * 64, mine >> 1 & 3, threadIdx.x >> 4 & 1};
    Places at = {{0, 0}, {0, 0}};
    correlate(work, shared, LAYOUT, row,
              [&](Products& of, const Task& task) { multiply(of, lane, at, halves, task); });
  }
#endif
}
