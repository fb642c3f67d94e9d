// Exact correlation of complex 4-bit samples on Hopper for 129 to 144 inputs. The last 1 to 16 inputs are edge
// columns of the only whole tile, as in wgmma.cu. Their accumulators take the registers in which wgmma_4bit.cu
// unpacks rows, so the rows are read from the unpacked columns in shared memory.
//
// A block has three warpgroups: one thread loads packed stages, one warp multiplies the edge block with itself, two
// warps unpack, two warpgroups multiply.
//
// EDGE, WIDTH, SINGLE_TILE, DYNAMIC: as in wgmma.cu, with values 128, 16, 1 and 0.
#define SHIFT 8
#include "wgmma.cuh"

static_assert(EDGE_COLUMNS && SINGLE_TILE && !DYNAMIC, "wgmma_4bit.cu");
// Bytes of an unpacked stage, offsets in it of the edge columns and of the others, and bytes of a packed stage.
constexpr u32 STAGE = (EXTRA + 128) * 128, BEFORE = 0, COLUMNS = EXTRA * 128, RAW = STAGE / 2;
constexpr u32 STAGES = 5, RAWS = 7, RAWS_AT = STAGES * STAGE, STAGING_AT = RAWS_AT + RAWS * RAW;
constexpr u32 SUMS_AT = STAGING_AT + 8 * STAGING, RAWS_FULL = SUMS_AT + 2 * 4 * PRODUCTS, RAWS_FREE = RAWS_FULL + RAWS * 8;
constexpr u32 FULL = RAWS_FREE + RAWS * 8, FREE = FULL + STAGES * 8, SUMS_FULL = FREE + STAGES * 8, SUMS_FREE = SUMS_FULL + 16;
constexpr u32 QUEUE_AT = SUMS_FREE + 16;
static_assert(QUEUE_AT + QUEUE_BYTES <= 232448, "a block's shared memory");
constexpr Layout LAYOUT = {STAGING_AT, SUMS_AT, SUMS_FULL, SUMS_FREE, QUEUE_AT};
using Stages = Ring<STAGES>;
#include "staged.cuh"

// Producer: loads all columns of each stage.
INLINE void produce(const Work& work, const TensorMap& map, const TensorMap& last, unsigned char* shared, u32 base) {
  Ring<RAWS> at = {0, 0};
  claim_jobs(work, shared, LAYOUT.queue, [&](const TileIndex& job) {
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const u32 full = base + RAWS_FULL + at.slot * 8, to = base + RAWS_AT + at.slot * RAW;
      barrier_wait(base + RAWS_FREE + at.slot * 8, at.parity ^ 1);
      barrier_expect(full, RAW);
      tensor_load_3d(to, &last, (i32)(stage * 64), 128, (i32)job.channel, full);
      tensor_load_3d(to + COLUMNS / 2, &map, (i32)(stage * 64), 0, (i32)job.channel, full);
      at.advance();
    }
  });
}

// Offset of an input's swizzled chunk 0 of 16 bytes. XOR with 16 times an index addresses the other chunks, which
// takes fewer registers than an offset for each.
INLINE u32 raw_at(u32 slot, u32 input) { return slot + input * 64 + (input >> 1 & 3) * 16; }
INLINE u32 wide_at(u32 slot, u32 input) { return slot + input * 128 + (input & 7) * 16; }
INLINE i32 unpack_chunk(unsigned char* shared, const uint4& samples, u32 to, u32 chunk, i32 sum) {
  return unpack_samples(samples, shared + (to ^ chunk * 32), shared + (to ^ chunk * 32 ^ 16), sum);
}
// Unpacks a quarter of the samples of an edge column.
INLINE i32 unpack_edge_column(unsigned char* shared, u32 raw, u32 wide, const EdgeColumn& edge_column, i32 sum) {
  static_assert(EdgeColumn::PARTS == 4, "a part is one chunk");
  const uint4 samples = *(const uint4*)(shared + (raw_at(raw, edge_column.column) ^ edge_column.part * 16));
  return unpack_chunk(shared, samples, wide_at(wide, edge_column.column), edge_column.part, sum);
}
// Unpacks all samples of an input.
INLINE i32 unpack_input(unsigned char* shared, u32 from, u32 to, i32 sum) {
  uint4 words[4];
#pragma unroll
  for (u32 chunk = 0; chunk < 4; chunk++) words[chunk] = *(const uint4*)(shared + (from ^ chunk * 16));
#pragma unroll
  for (u32 chunk = 0; chunk < 4; chunk++) sum = unpack_chunk(shared, words[chunk], to, chunk, sum);
  return sum;
}
// Unpacks stages, two inputs and a part of an edge column per thread, and sums imaginary parts.
INLINE void unpack(const Work& work, unsigned char* shared, u32 base, u32 thread) {
  Ring<RAWS> from = {0, 0};
  Stages to = {0, 0};
  Ring<2> sums = {0, 0};
  const bool lead = (thread & 31) == 0;
  for_each_job(work, shared, LAYOUT.queue, [&](const PublishedJob&) {
    i32 sum[2] = {0, 0}, part = 0;
    for (u32 stage = 0; stage < parts(work.halves, 2u); stage++) {
      const u32 raw = RAWS_AT + from.slot * RAW, wide = to.slot * STAGE;
      barrier_wait(base + RAWS_FULL + from.slot * 8, from.parity);
      barrier_wait(base + FREE + to.slot * 8, to.parity ^ 1);
      part = unpack_edge_column(shared, raw, wide, EdgeColumn(thread), part);
#pragma unroll
      for (u32 k = 0; k < 2; k++) {
        const u32 input = EXTRA + thread + k * 64;
        sum[k] = unpack_input(shared, raw_at(raw, input), wide_at(wide, input), sum[k]);
      }
      fence_async_shared();
      warp_arrive(base + FULL + to.slot * 8);
      __syncwarp();
      if (lead) barrier_arrive(base + RAWS_FREE + from.slot * 8);
      from.advance(), to.advance();
    }
    hand_over(shared, LAYOUT, sums, thread, sum, part);
  });
}

// Multiplies the rows of this warpgroup with the columns of the job, over all stages, 16 samples at a time.
INLINE void multiply(Products& of, const Lane& lane, Stages& at, u32 halves, const Task& task) {
  u32 rows[2][4] = {}, a[2][4] = {}, b[2][4] = {};
  auto full = [&](const Stages& slot) { barrier_wait(lane.base + FULL + slot.slot * 8, slot.parity); };
  auto release = [&](u32 slot) { warp_arrive(lane.base + FREE + slot * 8); };
  // Opaque zero: forces a copy. Otherwise the next load overwrites registers that `wgmma` still reads.
  const u32 from = lane.base + COLUMNS, none = halves >> 31;
  u32 old = 0, half = 0;
  full(at);
  load(rows, lane, from + at.slot * STAGE, 0);
  // `set` is the half of a stage.
  auto step = [&](auto set_) {
    constexpr u32 set = decltype(set_)::value;
    const u64 columns = wgmma_swizzled(lane.base + at.slot * STAGE + BEFORE) + task.column * 8 + set * 4;
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
#pragma unroll
      for (u32 q = 0; q < 4; q++) {
        a[k][q] = rows[k][q] ^ none, b[k][q] = turned(rows[k], q);
        keep(a[k][q]), keep(b[k][q]);
      }
      with_columns(task, [&](auto n_) {
        constexpr u32 N = decltype(n_)::value;
        wgmma_fence();
        wgmma_s8<N>(of.re, a[k], columns + 2 * k, 1);
        wgmma_s8<N>(of.im, b[k], columns + 2 * k, 1);
        wgmma_commit();
      });
      wgmma_wait<1>();
      // The earlier products have read their registers, which may be reused from here on.
#pragma unroll
      for (u32 q = 0; q < 4; q++) keep(a[k ^ 1][q]), keep(b[k ^ 1][q]);
    }
    const Stages next = at.next();
    if (set == 0) {
      if (half) release(old);
      old = at.slot;
    }
    if (half + 1 < halves) {
      if (set) full(next);
      load(rows, lane, from + (set ? next : at).slot * STAGE, set ^ 1);
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
    for (u32 i = 0; i < RAWS; i++) barrier_init(base + RAWS_FULL + i * 8, 1), barrier_init(base + RAWS_FREE + i * 8, 2);
    for (u32 i = 0; i < STAGES; i++) barrier_init(base + FULL + i * 8, 2 * ARRIVALS), barrier_init(base + FREE + i * 8, 9 * ARRIVALS);
    for (u32 i = 0; i < 2; i++) barrier_init(base + SUMS_FULL + i * 8, 64), barrier_init(base + SUMS_FREE + i * 8, 8 * ARRIVALS);
    barrier_init_fence();
  }
  __syncthreads();
  const u32 warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  if (warp < 4) {
    registers_fewer<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(work, map, last, shared, base);
    else if (warp >= 2) unpack(work, shared, base, threadIdx.x - 64);
    else if (warp == 1) multiply_corner(work, shared, base);
  } else {
    registers_more<CONSUMER_REGISTERS>();
    const u32 row = (warp - 4) * 16, mine = row + (threadIdx.x & 15);
    const Lane lane = {base, threadIdx.x & 31, mine * 128, mine & 7, threadIdx.x >> 4 & 1};
    Stages at = {0, 0};
    correlate(work, shared, LAYOUT, row,
              [&](Products& of, const Task& task) { multiply(of, lane, at, halves, task); });
  }
#endif
}
