// Exact dedispersion of bytes on Hopper: one-hot matrix products in windows, then rows read at each trial's shift.
//
// output[d][t] = offset + sum_c input[c][t + shift(d, c)]
//
// A block works on 64 trials x TIMES output times, and walks the band in groups of 32 channels.
//  1. stage: each channel of the group is moved by the smallest of its relative shifts, and 16 channels are
//     interleaved: one sample later is 16 bytes further.
//  2. multiply: for each position p of the window, the one-hot matrix A_p[trial][channel] = (relative shift == p) times
//     the staged samples, seen 16 p bytes later. This gives each trial's sum over the group in the trial's own frame,
//     which is even. The frames are skewed in time, so that those of 64 trials stay close over the whole band.
//  3. accumulate: the sums go through shared memory as u16 pairs, are read back at each trial's frame and added in
//     registers: the low bytes and the carries above them apart, so that any number of channels up to 65536 is exact.
// No barrier holds the whole block: rings in shared memory let warps be a group ahead of each other.
#include "device.cuh"

constexpr u32 THREADS = 512, WARPS = THREADS / 32, TRIALS = 64, GROUP = 32;
constexpr u32 TIMES = 384;               // output times of a block
constexpr u32 WORDS = TIMES / 64;        // words of two sums that a lane owns of each of its four trials
constexpr u32 COLUMNS = 520;             // staged samples of a channel
constexpr u32 RAW_BYTES = 528;           // of one channel, as it comes from memory
constexpr u32 ROW_WORDS = 228;           // of one trial's sums; 4 mod 32, so that eight rows fall on different banks
constexpr u32 ROW_COLUMNS = 448;
constexpr u32 RING = 3, HEADS = 16;
constexpr u32 SUB_BYTES = COLUMNS * 16, STAGED_BYTES = 2 * SUB_BYTES;
constexpr u32 ROWS_BYTES = TRIALS * ROW_WORDS * 4;

// What a block needs to know of 64 trials in one group; made on the host.
struct __align__(16) Head {
  u32 row[TRIALS];      // where each trial's sums begin, in words of the row buffer
  uint2 align[GROUP];   // of each channel: bytes from the raw row to the first sample's word, bits within the word
  i32 source[GROUP];    // first sample of the raw row, a multiple of 16
  i32 low[4];           // of each 16 trials: the first column that any of them reads, a multiple of 16
  u32 window, blocks, chunks, quads;   // positions; 64-column blocks; 16-byte chunks of a raw row; 4-column parts to stage
};
constexpr u32 HEAD_BYTES = 672, HOT_WORDS = 128;
static_assert(sizeof(Head) == HEAD_BYTES, "the host writes it");

// Where everything stands in shared memory.
constexpr u32 RAW_AT = RING * STAGED_BYTES, ROWS_AT = RAW_AT + RING * GROUP * RAW_BYTES;
constexpr u32 HEADS_AT = ROWS_AT + 2 * ROWS_BYTES, BARRIERS_AT = HEADS_AT + HEADS * HEAD_BYTES;
constexpr u32 HEAD_FULL = 0, RAW_FULL = HEADS * 8, STAGED_FULL = RAW_FULL + RING * 8, STAGED_FREE = STAGED_FULL + RING * 8;
constexpr u32 ROWS_FULL = STAGED_FREE + RING * 8, BARRIERS = (ROWS_FULL + 32) / 8;
static_assert(BARRIERS_AT + BARRIERS * 8 <= 232448, "a block's shared memory");

struct Task {
  i32* output;          // axes dm, time
  const u8* input;      // aligned to 16; axes channel, time
  const Head* heads;    // axes tile of trials, group
  const uint4* hot;     // axes tile, group, 16 trials, lane: bytes with the bit of the relative shift set
  const int2* trials;   // axes tile, 64: row of the output or -1; skew of its times
  u64 pitch, stride;
  i32 lead, times, offset;   // the first `lead` times are not wanted
  u32 channels, tiles, groups, jobs, flush;
};

// Which tile of trials, group and first time step `step` of this block is.
struct Place { u32 tile, group; i32 time; };
INLINE Place place(const Task& task, u32 step) {
  u32 turn = step / task.groups, job = blockIdx.x + turn * gridDim.x;
  return {job % task.tiles, step - turn * task.groups, (i32)(job / task.tiles * TIMES)};
}

INLINE u64 descriptor(u32 address) {
  return (u64)((address & 0x3ffff) >> 4) | ((u64)(SUB_BYTES >> 4) << 16) | ((u64)(128 >> 4) << 32);
}

// Sums of the blocks first, first + 4, ... of a group, in one warpgroup.
template <u32 WINDOW>
INLINE void multiply(uint4 hot, u64 staged, u32 to, i32 low, u32 first, u32 blocks, u32 rows_free, u32 parity) {
  u32 a[WINDOW][4];
#pragma unroll
  for (u32 p = 0; p < WINDOW; p++) {
    a[p][0] = (hot.x >> p) & 0x01010101u, a[p][1] = (hot.y >> p) & 0x01010101u;
    a[p][2] = (hot.z >> p) & 0x01010101u, a[p][3] = (hot.w >> p) & 0x01010101u;
#pragma unroll
    for (u32 i = 0; i < 4; i++) keep(a[p][i]);
  }
  for (u32 block = first; block < blocks; block += 4) {
    i32 c[32];
    wgmma_fence();
#pragma unroll
    for (u32 p = 0; p < WINDOW; p++) wgmma_64x64x32_u8(c, a[p], staged + block * 64 + p, p);
    wgmma_commit();
    barrier_wait(rows_free, parity);
    wgmma_wait<0>();
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      u32 column = block * 64 + 16 * i - low;
      if (column < ROW_COLUMNS)   // no trial of these 16 reads the others
        store_matrices(to + column * 2, __byte_perm(c[8 * i], c[8 * i + 1], 0x5410), __byte_perm(c[8 * i + 2], c[8 * i + 3], 0x5410),
                       __byte_perm(c[8 * i + 4], c[8 * i + 5], 0x5410), __byte_perm(c[8 * i + 6], c[8 * i + 7], 0x5410));
    }
  }
}

// Four samples of 16 channels a lane: to bytes that begin at the tile's first sample, interleaved.
INLINE void stage(const u8* raw, const uint4* align, unsigned char* to, u32 lane) {
  u32 v[16];
#pragma unroll
  for (u32 k = 0; k < 8; k++) {
    uint4 two = align[k];
    const u32* w = (const u32*)(raw + 2 * k * RAW_BYTES + two.x);
    v[2 * k] = __funnelshift_r(w[0], w[1], two.y);
    w = (const u32*)(raw + (2 * k + 1) * RAW_BYTES + two.z);
    v[2 * k + 1] = __funnelshift_r(w[0], w[1], two.w);
  }
  // Each lane begins with another of its four samples, so that 16-byte stores of eight lanes fall on all banks.
  u32 turn = (lane >> 1) & 3, next = (turn + 1) & 3, last = (turn + 3) & 3;
  u32 half = turn | (turn + 4) << 4 | next << 8 | (next + 4) << 12, other = half ^ 0x2222;
  u32 t[8], y[4];
#pragma unroll
  for (u32 k = 0; k < 8; k++) t[k] = __byte_perm(v[2 * k], v[2 * k + 1], half);
#pragma unroll
  for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x5410);
  ((uint4*)to)[turn] = make_uint4(y[0], y[1], y[2], y[3]);
#pragma unroll
  for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x7632);
  ((uint4*)to)[next] = make_uint4(y[0], y[1], y[2], y[3]);
#pragma unroll
  for (u32 k = 0; k < 8; k++) t[k] = __byte_perm(v[2 * k], v[2 * k + 1], other);
#pragma unroll
  for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x5410);
  ((uint4*)to)[turn ^ 2] = make_uint4(y[0], y[1], y[2], y[3]);
#pragma unroll
  for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x7632);
  ((uint4*)to)[last] = make_uint4(y[0], y[1], y[2], y[3]);
}

// Sums of four trials over a part of the times, two in a word: the low 16 bits, and multiples of 256.
struct Sums { u32 low[4][WORDS], high[4][WORDS]; };

INLINE void clear(Sums& sums) {
#pragma unroll
  for (u32 d = 0; d < 4; d++)
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) sums.low[d][k] = sums.high[d][k] = 0;
}

INLINE void accumulate(Sums& sums, const u32* rows, uint4 at, bool flush) {
  const u32 begin[4] = {at.x, at.y, at.z, at.w};
#pragma unroll
  for (u32 d = 0; d < 4; d++)
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) sums.low[d][k] += rows[begin[d] + 32 * k];
  if (flush) {
#pragma unroll
    for (u32 d = 0; d < 4; d++)
#pragma unroll
      for (u32 k = 0; k < WORDS; k++) {
        sums.high[d][k] += __byte_perm(sums.low[d][k], 0, 0x4341);
        sums.low[d][k] &= 0x00ff00ffu;
      }
  }
}

INLINE void write(const Task& task, const Sums& sums, const int2* trials, i32 time, u32 lane) {
#pragma unroll
  for (u32 d = 0; d < 4; d++) {
    int2 trial = trials[d];
    if (trial.x < 0) continue;
    i32* row = task.output + trial.x * task.stride;
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) {
      u32 low = sums.low[d][k], high = sums.high[d][k];
      i32 t = time + trial.y - task.lead + (i32)(2 * (lane + 32 * k));
      if (t >= 0 && t < task.times) row[t] = (i32)((low & 0xffff) + ((high & 0xffff) << 8)) + task.offset;
      if (t >= -1 && t + 1 < task.times) row[t + 1] = (i32)((low >> 16) + ((high >> 16) << 8)) + task.offset;
    }
  }
}

KERNEL __launch_bounds__(THREADS, 1) dedisperse_wgmma(i32* output, const u8* input, const Head* heads, const uint4* hot,
    const int2* trials, u64 pitch, u64 stride, i32 lead, i32 times, i32 offset, u32 channels, u32 tiles, u32 groups, u32 jobs,
    u32 flush) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Task task = {output, input, heads, hot, trials, pitch, stride, lead, times, offset, channels, tiles, groups, jobs, flush};
  const u32 lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), team = warp >> 2, slab = warp & 3;
  const u32 base = shared_address(shared), barriers = base + BARRIERS_AT;
  const u32 turns = (task.jobs - blockIdx.x + gridDim.x - 1) / gridDim.x, steps = turns * task.groups;

  if (threadIdx.x == 0) {
    for (u32 i = 0; i < HEADS; i++) barrier_init(barriers + HEAD_FULL + i * 8, 1);
    for (u32 i = 0; i < RING; i++) {
      barrier_init(barriers + RAW_FULL + i * 8, 1);
      barrier_init(barriers + STAGED_FULL + i * 8, WARPS / 2);
      barrier_init(barriers + STAGED_FREE + i * 8, WARPS);
    }
    for (u32 i = 0; i < 4; i++) barrier_init(barriers + ROWS_FULL + i * 8, 4);
    barrier_init_fence();
  }
  __syncthreads();

  auto head = [&](u32 step) -> const Head& { return *(const Head*)(shared + HEADS_AT + (step & (HEADS - 1)) * HEAD_BYTES); };
  auto load_head = [&](u32 step) {
    if (step >= steps || lane != 0) return;
    Place at = place(task, step);
    u32 barrier = barriers + HEAD_FULL + (step & (HEADS - 1)) * 8;
    barrier_expect(barrier, HEAD_BYTES);
    bulk_load(shared_address(&head(step)), task.heads + (u64)at.tile * task.groups + at.group, HEAD_BYTES, barrier);
  };
  auto load_raw = [&](u32 step, u32 slot) {   // a lane a channel
    if (step >= steps) return;
    Place at = place(task, step);
    barrier_wait(barriers + HEAD_FULL + (step & (HEADS - 1)) * 8, step / HEADS & 1);
    const Head& table = head(step);
    u32 bytes = table.chunks * 16, barrier = barriers + RAW_FULL + slot * 8;
    if (lane == 0) barrier_expect(barrier, GROUP * bytes);
    __syncwarp();
    u32 channel = smaller(at.group * GROUP + lane, task.channels - 1);
    const u8* from = task.input + (u64)channel * task.pitch + (at.time + table.source[lane]);
    bulk_load(base + RAW_AT + (slot * GROUP + lane) * RAW_BYTES, from, bytes, barrier);
  };
  if (warp == 0) {
    for (u32 step = 0; step < 6; step++) load_head(step);
    for (u32 step = 0; step < RING; step++) load_raw(step, step);
  }

  auto stage_step = [&](u32 step, u32 slot, u32 phase) {   // by two of the four warpgroups
    if (step >= steps || ((team ^ step) & 1)) return;
    barrier_wait(barriers + STAGED_FREE + slot * 8, phase ^ 1);
    barrier_wait(barriers + RAW_FULL + slot * 8, phase);
    const Head& table = head(step);
    u32 sub = team >> 1, quad = slab * 32 + lane;
    if (quad < table.quads)
      stage(shared + RAW_AT + (slot * GROUP + sub * 16) * RAW_BYTES + quad * 4, (const uint4*)(table.align + sub * 16),
            shared + slot * STAGED_BYTES + sub * SUB_BYTES + quad * 64, lane);
    fence_async_shared();
    __syncwarp();
    if (lane == 0) barrier_arrive(barriers + STAGED_FULL + slot * 8);
  };
  // Where this lane's eighth of a stored matrix goes, and the sums that it reads back.
  const u32 to = base + ROWS_AT + (slab * 16 + (lane & 15)) * ROW_WORDS * 4 + (lane >> 4) * 16;
  const u32 rows_full = barriers + ROWS_FULL + slab * 8;
  auto multiply_step = [&](u32 step, u32 slot, uint4 bits) {
    const Head& table = head(step);
    u64 staged = descriptor(base + slot * STAGED_BYTES);
    u32 row = to + (step & 1) * ROWS_BYTES, blocks = table.blocks, window = table.window, first = (team + step) & 3;
    i32 low = table.low[slab];
    u32 parity = (step & 1) ^ 1;
    if (window <= 3) multiply<3>(bits, staged, row, low, first, blocks, rows_full, parity);
    else if (window == 4) multiply<4>(bits, staged, row, low, first, blocks, rows_full, parity);
    else if (window == 5) multiply<5>(bits, staged, row, low, first, blocks, rows_full, parity);
    else if (window == 6) multiply<6>(bits, staged, row, low, first, blocks, rows_full, parity);
    else multiply<8>(bits, staged, row, low, first, blocks, rows_full, parity);
    if (lane == 0) barrier_arrive(barriers + STAGED_FREE + slot * 8);
  };
  Sums sums;
  clear(sums);
  u32 summed = 0, turn = 0;   // groups of the tile that the sums hold; its place among this block's
  auto accumulate_step = [&](u32 step) {
    if (step == 0) return;
    barrier_wait(rows_full, (step - 1) & 1);
    const u32* rows = (const u32*)(shared + ROWS_AT + ((step - 1) & 1) * ROWS_BYTES) + lane;
    accumulate(sums, rows, ((const uint4*)head(step - 1).row)[slab * 4 + team], (summed & task.flush) == task.flush);
    if (++summed < task.groups) return;
    u32 job = blockIdx.x + turn * gridDim.x, tile = job % task.tiles;
    write(task, sums, task.trials + tile * TRIALS + slab * 16 + team * 4, (i32)(job / task.tiles * TIMES), lane);
    clear(sums);
    summed = 0, turn++;
  };

  stage_step(0, 0, 0);
  u32 slot = 0, phase = 0;
  Place here = place(task, 0);
  const uint4* bits_at = task.hot + ((u64)here.tile * task.groups) * HOT_WORDS + slab * 32 + lane;
  uint4 bits = __ldg(bits_at);
  u32 done = 0;
  for (u32 step = 0; step < steps; step++) {
    u32 next_slot = slot == RING - 1 ? 0 : slot + 1, next_phase = phase ^ (slot == RING - 1);
    bits_at += HOT_WORDS;
    if (++done == task.groups) {
      done = 0;
      here = place(task, step + 1);
      bits_at = task.hot + ((u64)here.tile * task.groups) * HOT_WORDS + slab * 32 + lane;
    }
    uint4 next_bits = step + 1 < steps ? __ldg(bits_at) : bits;
    barrier_wait(barriers + STAGED_FULL + slot * 8, phase);
    if (warp == (step & (WARPS - 1))) {
      load_raw(step + RING, slot);
      load_head(step + 6);
    }
    if (team & 1) {   // two orders, so that matrix products and shared memory work at once
      accumulate_step(step);
      stage_step(step + 1, next_slot, next_phase);
      multiply_step(step, slot, bits);
    } else {
      multiply_step(step, slot, bits);
      stage_step(step + 1, next_slot, next_phase);
      accumulate_step(step);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(rows_full);
    bits = next_bits, slot = next_slot, phase = next_phase;
  }
  accumulate_step(steps);
#endif
}
