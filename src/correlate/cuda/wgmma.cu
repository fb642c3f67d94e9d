// Exact correlation of complex 8-bit samples on Hopper: sums[I][J] = sum_t x_I[t] conj(x_J[t]), in tiles of EDGE x
// EDGE inputs.
//
// With a = (r, i) and a' = (i, ~r) as bytes along time, Re = a . b and Im = a' . b + sum_t i_b, because -r = ~r + 1
// and ~r never overflows a byte. a' is made in registers, so one copy of the samples in shared memory serves both
// products.
//
// Thread blocks are persistent and have three warpgroups. In the first, one thread loads slots of 128 inputs x 128
// bytes and two warps sum i_b over the columns. The other two (consumers) multiply 64 rows x 128 columns each, with
// accumulators in registers. A diagonal tile needs no slot of rows, and its upper half no columns right of the
// diagonal.
//
// EDGE: inputs along a tile: 32, 64 or 128. SMALL (EDGE < 128): all inputs fit one tile; a job has 128 / EDGE
// channels.
// WIDTH: inputs of the last block, rounded up to a multiple of 16 (128 if SMALL). RAGGED (WIDTH < 128): tiles of the
// last block are computed transposed, with its inputs as columns, because `wgmma` allows few columns but always takes
// 64 rows.
// SINGLE_TILE: 1 if a channel has one tile, not counting an edge block. Rows then need no slots. Memory is the bottleneck,
// so sums are stored by bulk copies in the background while loads continue.
// DYNAMIC: 1 for the dynamic tile scheduler.
// EDGE_COLUMNS (WIDTH 16): the edge block has no jobs of its own. In the diagonal tile of each other block of inputs, where
// a stage has no rows, its columns precede those of the tile, and the same instructions multiply them. Those products
// are stored transposed. One warp multiplies the edge block with itself (staged.cuh).
#define SHIFT 0
#include "wgmma.cuh"

// Bytes of a stage, and offsets in it of the columns and of the edge columns.
constexpr u32 STAGE = SLOT + (SINGLE_TILE ? EXTRA * 128 : SLOT), COLUMNS = STAGE - SLOT, BEFORE = COLUMNS - EXTRA * 128;
constexpr u32 STAGES = !SINGLE_TILE ? 7 : EDGE_COLUMNS ? 8 : 10;
constexpr u32 STAGING_AT = STAGES * STAGE, SUMS_AT = STAGING_AT + (SINGLE_TILE ? 8 * STAGING : 0), FULL = SUMS_AT + 2 * 4 * PRODUCTS;
constexpr u32 FREE = FULL + STAGES * 8, SUMS_FULL = FREE + STAGES * 8, SUMS_FREE = SUMS_FULL + 16;
constexpr u32 QUEUE_AT = SUMS_FREE + 16;
static_assert(QUEUE_AT + QUEUE_BYTES <= 232448, "a block's shared memory");
static_assert(!DYNAMIC || (!SINGLE_TILE && !EDGE_COLUMNS), "no gain there");
constexpr Layout LAYOUT = {STAGING_AT, SUMS_AT, SUMS_FULL, SUMS_FREE, QUEUE_AT};
using Stages = Ring<STAGES>;
#include "staged.cuh"

// Producer: loads the columns of each stage, and the rows unless they are the same inputs.
INLINE void produce(const Work& work, const TensorMap& map, const TensorMap& last, unsigned char* shared, u32 base) {
  Stages at = {0, 0};
  claim_jobs(work, shared, LAYOUT.queue, [&](const TileIndex& job) {
    const bool narrow = RAGGED && job.row == work.blocks - 1, same = SINGLE_TILE || job.row == job.column;
    const u32 rows = narrow ? job.column : job.row, columns = narrow ? job.row : job.column;
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const u32 full = base + FULL + at.slot * 8, to = base + at.slot * STAGE;
      barrier_wait(base + FREE + at.slot * 8, at.parity ^ 1);
      barrier_expect(full, (narrow ? WIDTH * 128 : SLOT) + (same ? EXTRA * 128 : SLOT));
      if (EDGE_COLUMNS && same) tensor_load_3d(to + BEFORE, &last, (i32)(stage * 128), (i32)((work.blocks - 1) * 128), (i32)job.channel, full);
      if (!same) tensor_load_3d(to, &map, (i32)(stage * 128), (i32)(rows * 128), (i32)job.channel, full);
      tensor_load_3d(to + COLUMNS, narrow ? &last : &map, (i32)(stage * 128), (i32)(columns * 128), (i32)job.channel, full);
      at.advance();
    }
  });
}

// Adds the imaginary parts of this thread's chunks of an edge column to `sum`.
INLINE i32 sum_edge_column(const unsigned char* from, const EdgeColumn& edge_column, i32 sum) {
#pragma unroll
  for (u32 chunk = 0; chunk < 8; chunk += EdgeColumn::PARTS) {
    const u32 at = ((chunk + edge_column.part) ^ (edge_column.column & 7)) * 16;
    sum = sum_bytes(*(const uint4*)(from + edge_column.column * 128 + at), 0x01000100, sum);
  }
  return sum;
}
// Sums imaginary parts over time: two columns and a part of an edge column per thread.
INLINE void sum_columns(const Work& work, unsigned char* shared, u32 base, u32 thread) {
  Stages at = {0, 0};
  Ring<2> to = {0, 0};
  for_each_job(work, shared, LAYOUT.queue, [&](const PublishedJob& published) {
    const TileIndex job = published();
    i32 sums[2] = {0, 0}, part = 0;
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const unsigned char* const from = shared + at.slot * STAGE + COLUMNS + thread * 128;
      barrier_wait(base + FULL + at.slot * 8, at.parity);
#pragma unroll
      for (u32 chunk = 0; chunk < 8; chunk++)
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
          const uint4 word = *(const uint4*)(from + k * 64 * 128 + (chunk ^ (thread & 7)) * 16);
          sums[k] = sum_bytes(word, 0x01000100, sums[k]);
        }
      if (EDGE_COLUMNS && job.row == job.column) part = sum_edge_column(shared + at.slot * STAGE + BEFORE, EdgeColumn(thread), part);
      __syncwarp();
      if ((thread & 31) == 0) barrier_arrive(base + FREE + at.slot * 8);
      at.advance();
    }
    hand_over(shared, LAYOUT, to, thread, sums, part);
  });
}

// Issues the products of 64 bytes of time: rows `a`, and their a' in `b`, with the columns at `from`.
INLINE void issue(Products& of, const Task& task, const u32 (&a)[2][4], const u32 (&b)[2][4], u64 from) {
  with_columns(task, [&](auto n_) {
    constexpr u32 N = decltype(n_)::value;
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
      wgmma_s8<N>(of.re, a[k], from + 2 * k, 1);
      wgmma_s8<N>(of.im, b[k], from + 2 * k, 1);
    }
    wgmma_commit();
  });
}
// Waits until all products but those issued last have finished. These registers may be reused from here on.
INLINE void release_registers(u32 (&a)[2][4], u32 (&b)[2][4]) {
  wgmma_wait<1>();
#pragma unroll
  for (u32 k = 0; k < 2; k++)
#pragma unroll
    for (u32 q = 0; q < 4; q++) keep(a[k][q]), keep(b[k][q]);
}

// Prefetch distance of rows in half stages. A product blocks its warp until the product has read its registers.
constexpr u32 AHEAD = 2;

// Multiplies the rows of this warpgroup with the columns of the job, over all stages.
INLINE void multiply(Products& of, const Lane& lane, Stages& at, u32 halves, const Task& task) {
  u32 a[2 * AHEAD][2][4] = {}, b[2][2][4] = {};
  auto full = [&](const Stages& slot) { barrier_wait(lane.base + FULL + slot.slot * 8, slot.parity); };
  auto release = [&](u32 slot) { if (lane.lane == 0) barrier_arrive(lane.base + FREE + slot * 8); };
  const u32 rows = lane.base + (task.same ? COLUMNS : 0);
  u32 old = 0, half = 0;
  full(at);
#pragma unroll
  for (u32 i = 0; i < AHEAD; i++) load(a[i], lane, rows + at.slot * STAGE, i);
  // `u` is the index of the half stage modulo 4.
  auto step = [&](auto u_) {
    constexpr u32 u = decltype(u_)::value, set = u & 1, later = (u + AHEAD) & 1;
    u32(&mine)[2][4] = a[u % (2 * AHEAD)];
#pragma unroll
    for (u32 k = 0; k < 2; k++)
#pragma unroll
      for (u32 q = 0; q < 4; q++) b[set][k][q] = turned(mine[k], q);
    const u64 from = wgmma_swizzled(lane.base + at.slot * STAGE + BEFORE) + task.column * 8 + set * 4;
    issue(of, task, mine, b[set], from);
    release_registers(a[(u + 2 * AHEAD - 1) % (2 * AHEAD)], b[set ^ 1]);
    const Stages next = at.next();
    if (set == 0) {
      if (half) release(old);
      old = at.slot;
    }
    if (half + AHEAD < halves) {
      if (later == 0) full(next);
      load(a[(u + AHEAD) % (2 * AHEAD)], lane, rows + (set + AHEAD < 2 ? at : next).slot * STAGE, later);
    }
    if (set) at = next;
    return ++half < halves;
  };
  while (step(Constant<0>{}) && step(Constant<1>{}) && step(Constant<2>{}) && step(Constant<3>{})) {}
  wgmma_wait<0>();
  release(old);
  if (half & 1) at.advance();
}

// Like `multiply`, for EDGE_COLUMNS, whose accumulators leave fewer registers. The loop is unrolled over one stage only,
// and rows are copied before their products, so that the prefetch of the next stage needs no further registers.
INLINE void multiply_with_edge_columns(Products& of, const Lane& lane, Stages& at, u32 halves, const Task& task) {
  u32 raw[2][2][4] = {}, a[2][2][4] = {}, b[2][2][4] = {};
  auto full = [&](const Stages& slot) { barrier_wait(lane.base + FULL + slot.slot * 8, slot.parity); };
  auto release = [&](u32 slot) { if (lane.lane == 0) barrier_arrive(lane.base + FREE + slot * 8); };
  // Opaque zero: forces a copy. Otherwise the prefetch overwrites registers that `wgmma` still reads.
  const u32 rows = lane.base + (task.same ? COLUMNS : 0), none = halves >> 31;
  u32 old = 0, half = 0;
  full(at);
#pragma unroll
  for (u32 i = 0; i < 2; i++) load(raw[i], lane, rows + at.slot * STAGE, i);
  // `set` is the half of a stage.
  auto step = [&](auto set_) {
    constexpr u32 set = decltype(set_)::value;
#pragma unroll
    for (u32 k = 0; k < 2; k++)
#pragma unroll
      for (u32 q = 0; q < 4; q++) {
        a[set][k][q] = raw[set][k][q] ^ none, b[set][k][q] = turned(raw[set][k], q) ^ none;
        keep(a[set][k][q]), keep(b[set][k][q]);
      }
    const u64 from = wgmma_swizzled(lane.base + at.slot * STAGE + BEFORE) + task.column * 8 + set * 4;
    issue(of, task, a[set], b[set], from);
    release_registers(a[set ^ 1], b[set ^ 1]);
    const Stages next = at.next();
    if (set == 0) {
      if (half) release(old);
      old = at.slot;
    }
    if (half + 2 < halves) {
      if (set == 0) full(next);
      load(raw[set], lane, rows + next.slot * STAGE, set);
    }
    if (set) at = next;
    return ++half < halves;
  };
  while (step(Constant<0>{}) && step(Constant<1>{})) {}
  wgmma_wait<0>();
  release(old);
  if (half & 1) at.advance();
}

// Registers per thread of the first warpgroup, and of the consumer warpgroups.
constexpr u32 PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
static_assert(PRODUCER_REGISTERS + 2 * CONSUMER_REGISTERS <= REGISTERS, "a block's registers");

KERNEL __launch_bounds__(THREADS, 1) correlate_wgmma(const __grid_constant__ TensorMap map, const __grid_constant__ TensorMap last,
    u64 sums, u32 channels, u32 inputs, u32 blocks, u32 tiles,
    u32 jobs, u32 halves, u32 add, u32* claimed) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Work work = {sums, channels, inputs, blocks, tiles, jobs, halves, add, claimed};
  const u32 base = shared_address(shared);
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < STAGES; i++) barrier_init(base + FULL + i * 8, 1), barrier_init(base + FREE + i * 8, EDGE_COLUMNS ? 11 : 10);
    for (u32 i = 0; i < 2; i++) barrier_init(base + SUMS_FULL + i * 8, 64), barrier_init(base + SUMS_FREE + i * 8, 8 * ARRIVALS);
    init_queue(base + QUEUE_AT, 10);
    barrier_init_fence();
  }
  __syncthreads();
  const u32 warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  if (warp < 4) {
    registers_fewer<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(work, map, last, shared, base);
    else if (warp >= 2) sum_columns(work, shared, base, threadIdx.x - 64);
    else if (EDGE_COLUMNS && warp == 1) multiply_corner(work, shared, base);
  } else {
    registers_more<CONSUMER_REGISTERS>();
    const u32 row = (warp - 4) * 16, mine = row + (threadIdx.x & 15);
    const Lane lane = {base, threadIdx.x & 31, mine * 128, mine & 7, threadIdx.x >> 4 & 1};
    Stages at = {0, 0};
    correlate(work, shared, LAYOUT, row,
              [&](Products& of, const Task& task) {
                if constexpr (EDGE_COLUMNS) multiply_with_edge_columns(of, lane, at, halves, task);
                else multiply(of, lane, at, halves, task);
              });
  }
#endif
}
