// Kernel of the Hopper correlators. The including file defines the parts of its form: the layout of shared memory (LAYOUT),
// PRODUCER_REGISTERS and CONSUMER_REGISTERS per thread, ROW_BYTES of a slot's row, `init_barriers`, `produce` for one
// thread, `assist` for warps 1 to 3, and for the two consumer warpgroups a Position in the rings and `multiply`.
#pragma once

static_assert(QUEUE_AT + QUEUE_BYTES <= 232448, "a block's shared memory");
static_assert(PRODUCER_REGISTERS + 2 * CONSUMER_REGISTERS <= REGISTERS, "a block's registers");

KERNEL __launch_bounds__(THREADS, 1) correlate_wgmma(const __grid_constant__ TensorMap map, const __grid_constant__ TensorMap last,
    u64 sums, u32 channels, u32 inputs, u32 blocks, u32 tiles,
    u32 jobs, u32 halves, u32 add, u32* claimed) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Work work = {sums, channels, inputs, blocks, tiles, jobs, halves, add, claimed};
  const u32 base = shared_address(shared);
  if (threadIdx.x == 0) {
    init_barriers(base);
    for (u32 i = 0; i < 2; i++) barrier_init(base + SUMS_FULL + i * 8, 64), barrier_init(base + SUMS_FREE + i * 8, 8 * ARRIVALS);
    init_queue(base + QUEUE_AT, 10);
    barrier_init_fence();
  }
  __syncthreads();
  const u32 warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  if (warp < 4) {
    registers_fewer<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(work, map, last, shared, base);
    else assist(work, shared, base, warp);
  } else {
    registers_more<CONSUMER_REGISTERS>();
    const u32 row = (warp - 4) * 16, mine = row + (threadIdx.x & 15);
    const Lane lane = {base, threadIdx.x & 31, mine * ROW_BYTES, ROW_BYTES == 128 ? mine & 7 : mine >> 1 & 3, threadIdx.x >> 4 & 1};
    Position at = {};
    correlate(work, shared, LAYOUT, row,
              [&](Products& of, const Task& task) { multiply(of, lane, at, halves, task); });
  }
#endif
}
