// Exact dedispersion of bytes on Hopper: one-hot matrix products in windows, then rows read at each trial's shift.
//
// output[d][t] = offset + sum_c input[c][t + shift(d, c)]
//
// A block works on 64 trials x TIMES output times, and walks the band in groups of GROUP channels.
//  1. stage: each channel of the group is moved by the smallest of its relative shifts, and 16 channels are
//     interleaved: one sample later is 16 bytes further.
//  2. multiply: for each position p of the window, the one-hot matrix A_p[trial][channel] = (relative shift == p) times
//     the staged samples, seen 16 p bytes later. This gives each trial's sum over the group in the trial's own frame,
//     which is even. The frames are skewed in time, so that those of 64 trials stay close over the whole band.
//  3. accumulate: the sums go through shared memory as u16 pairs, are read back at each trial's frame and added in
//     registers; multiples of 256 are moved out before 16 bits are full, so that up to 65536 channels are exact.
// No barrier holds the whole block: rings in shared memory let warps be a group ahead of each other.
//
// TIMES: output times of a block, a multiple of 64. GROUP: 32 or 64. RING: groups in flight. SETS: windows of up to
// 8 SETS positions; with GROUP 64 it is 1.
#include "device.cuh"

constexpr u32 THREADS = 512, WARPS = THREADS / 32, TRIALS = 64;
constexpr u32 HALVES = GROUP / 32, SUBS = GROUP / 16;
constexpr u32 WORDS = TIMES / 64;        // words of two sums that a lane owns of each of its four trials
constexpr u32 COLUMNS = TIMES + 136;     // samples of a staged channel; the last 8 are seen by unused products alone
constexpr u32 RAW_BYTES = TIMES + 144;   // of a channel, as it comes from memory
constexpr u32 ROW_COLUMNS = TIMES + 64, ROW_WORDS = ROW_COLUMNS / 2 + 4;   // eight rows fall on different banks
constexpr u32 HEADS = 8, AHEAD = HEADS - 1 - RING;
constexpr u32 SUB_BYTES = COLUMNS * 16, STAGED_BYTES = SUBS * SUB_BYTES, HALF_STEP = 2 * SUB_BYTES / 16;
static_assert(GROUP % 32 == 0 && HALVES * SETS <= 2 && TIMES % 64 == 0 && TIMES <= 384 && RING >= 2 && RING <= 3, "");

// What a block needs to know of 64 trials in one group; made on the host.
struct __align__(16) Head {
  u32 row[TRIALS];      // where each trial's sums begin, in words of the row buffer
  uint2 align[GROUP];   // of each channel: bytes from the raw row to the first sample's word, bits within the word
  i32 source[GROUP];    // first sample of the raw row, a multiple of 16
  i32 low[4];           // of each 16 trials: the first column that any of them reads, a multiple of 16
  u32 window, blocks, chunks, quads;   // positions; 64-column blocks; 16-byte chunks of a raw row; 4-column parts to stage
};
constexpr u32 HEAD_BYTES = sizeof(Head);
constexpr u32 HOT_WORDS = 128, HOTS = HALVES * SETS;   // of 32 channels and 8 positions; such sets of a group

// Where everything stands in shared memory.
constexpr u32 RAW_AT = RING * STAGED_BYTES, ROWS_AT = RAW_AT + RING * GROUP * RAW_BYTES;
constexpr u32 HIGH_AT = ROWS_AT + TRIALS * ROW_WORDS * 4, HEADS_AT = HIGH_AT + TRIALS * TIMES * 2;
constexpr u32 BARRIERS_AT = HEADS_AT + HEADS * HEAD_BYTES;
constexpr u32 HEAD_FULL = 0, RAW_FULL = HEADS * 8, STAGED_FULL = RAW_FULL + RING * 8, STAGED_FREE = STAGED_FULL + RING * 8;
constexpr u32 ROWS_FULL = STAGED_FREE + RING * 8, ROWS_FREE = ROWS_FULL + 32;
static_assert(HEAD_BYTES % 16 == 0 && BARRIERS_AT + ROWS_FREE + 32 <= 232448, "a block's shared memory");

struct Task {
  i32* output;          // axes dm, time
  const u8* input;      // aligned to 16; axes channel, time
  const Head* heads;    // axes tile of trials, group
  const uint4* hot;     // axes tile, group, set, 16 trials, lane: bytes with the bit of the relative shift set
  const int2* trials;   // axes tile, 64: row of the output or -1; skew of its times
  u64 pitch, stride;
  i32 lead, times, offset;   // the first `lead` times are not wanted
  u32 channels, tiles, groups, jobs, flush;   // groups - 1 between two moves of multiples of 256, a power of two less 1
};

// Which tile of trials, group and first time a step of this block is.
struct Place { u32 tile, group; i32 time; };
INLINE Place place(const Task& task, u32 step) {
  u32 turn = step / task.groups, job = blockIdx.x + turn * gridDim.x;
  return {job % task.tiles, step - turn * task.groups, (i32)(job / task.tiles * TIMES)};
}

// No swizzle: 16 channels are SUB_BYTES apart, 8 samples 128 bytes.
INLINE u64 descriptor(u32 address) {
  return (u64)((address & 0x3ffff) >> 4) | ((u64)(SUB_BYTES >> 4) << 16) | ((u64)(128 >> 4) << 32);
}

// A_p of WINDOW positions.
template <u32 WINDOW> INLINE void one_hot(u32 (&a)[WINDOW][4], uint4 hot) {
#pragma unroll
  for (u32 p = 0; p < WINDOW; p++) {
    a[p][0] = (hot.x >> p) & 0x01010101u, a[p][1] = (hot.y >> p) & 0x01010101u;
    a[p][2] = (hot.z >> p) & 0x01010101u, a[p][3] = (hot.w >> p) & 0x01010101u;
#pragma unroll
    for (u32 i = 0; i < 4; i++) keep(a[p][i]);
  }
}
// Their products with 64 columns.
template <u32 WINDOW> INLINE void products(i32 (&c)[32], const u32 (&a)[WINDOW][4], u64 staged, i32 add) {
#pragma unroll
  for (u32 p = 0; p < WINDOW; p++) wgmma_64x64x32_u8(c, a[p], staged + p, p ? 1 : add);
}
// Sums of 16 trials over 64 columns to their rows; `column` counts from the first that any of the 16 reads.
INLINE void store(const i32 (&c)[32], u32 to, u32 column) {
#pragma unroll
  for (u32 i = 0; i < 4; i++, column += 16) {
    if (column >= ROW_COLUMNS) continue;   // no trial of these 16 reads them
    u32 pair[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) pair[k] = __byte_perm(c[8 * i + 2 * k], c[8 * i + 2 * k + 1], 0x5410);
    store_matrices(to + column * 2, pair[0], pair[1], pair[2], pair[3]);
  }
}

// One warpgroup's part of a group: the blocks first, first + 4, ...
struct Part { u64 staged; u32 to; i32 low; u32 first, blocks; };

// `meanwhile` runs while the first products do, and must have run before rows are written.
template <u32 WINDOW, class Meanwhile> INLINE void multiply(const Part& part, const uint4 (&hot)[HALVES], Meanwhile meanwhile) {
  u32 a[HALVES][WINDOW][4];
#pragma unroll
  for (u32 half = 0; half < HALVES; half++) one_hot(a[half], hot[half]);
  for (u32 block = part.first; block < part.blocks; block += 4) {
    i32 c[32];
    wgmma_fence();
#pragma unroll
    for (u32 half = 0; half < HALVES; half++) products(c, a[half], part.staged + half * HALF_STEP + block * 64, half);
    wgmma_commit();
    if (block == part.first) meanwhile();
    wgmma_wait<0>();
    store(c, part.to, block * 64 - part.low);
  }
}
// The same where not all of A fits the registers: two parts, the second at staged + `step`.
template <u32 WINDOW, u32 REST, class Meanwhile>
INLINE void multiply_parts(const Part& part, uint4 near, uint4 far, u32 step, Meanwhile meanwhile) {
  for (u32 block = part.first; block < part.blocks; block += 4) {
    i32 c[32];
    {
      u32 a[WINDOW][4];
      one_hot(a, near);
      wgmma_fence();
      products(c, a, part.staged + block * 64, 0);
      wgmma_commit();
      if (block == part.first) meanwhile();
      wgmma_wait<0>();
    }
    u32 a[REST][4];
    one_hot(a, far);
    wgmma_fence();
    products(c, a, part.staged + step + block * 64, 1);
    wgmma_commit();
    wgmma_wait<0>();
    store(c, part.to, block * 64 - part.low);
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
  const u32 turn = (lane >> 1) & 3, next = (turn + 1) & 3;
  const u32 first = turn | (turn + 4) << 4 | next << 8 | (next + 4) << 12;
#pragma unroll
  for (u32 half = 0; half < 2; half++) {
    u32 t[8], y[4];
#pragma unroll
    for (u32 k = 0; k < 8; k++) t[k] = __byte_perm(v[2 * k], v[2 * k + 1], first ^ (half * 0x2222));
#pragma unroll
    for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x5410);
    ((uint4*)to)[turn ^ (2 * half)] = make_uint4(y[0], y[1], y[2], y[3]);
#pragma unroll
    for (u32 k = 0; k < 4; k++) y[k] = __byte_perm(t[2 * k], t[2 * k + 1], 0x7632);
    ((uint4*)to)[next ^ (2 * half)] = make_uint4(y[0], y[1], y[2], y[3]);
  }
}

// Sums of four trials over a part of the times, two in a word, without the multiples of 256 that were moved out.
using Sums = u32[4][WORDS];

INLINE void write(const Task& task, const Sums& sums, const u32* high, bool moved, const int2* trials, i32 time, u32 lane) {
#pragma unroll
  for (u32 d = 0; d < 4; d++) {
    int2 trial = trials[d];
    if (trial.x < 0) continue;
    i32* row = task.output + trial.x * task.stride;
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) {
      u32 low = sums[d][k], above = moved ? high[(d * WORDS + k) * THREADS] : 0;
      i32 t = time + trial.y - task.lead + (i32)(2 * (lane + 32 * k));
      if (t >= 0 && t < task.times) row[t] = (i32)((low & 0xffff) + ((above & 0xffff) << 8)) + task.offset;
      if (t >= -1 && t + 1 < task.times) row[t + 1] = (i32)((low >> 16) + ((above >> 16) << 8)) + task.offset;
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
  const u32 steps = (task.jobs - blockIdx.x + gridDim.x - 1) / gridDim.x * task.groups;

  if (threadIdx.x == 0) {
    for (u32 i = 0; i < HEADS; i++) barrier_init(barriers + HEAD_FULL + i * 8, 1);
    for (u32 i = 0; i < RING; i++) {
      barrier_init(barriers + RAW_FULL + i * 8, 1);
      barrier_init(barriers + STAGED_FULL + i * 8, 4 * SUBS);
      barrier_init(barriers + STAGED_FREE + i * 8, WARPS);
    }
    for (u32 i = 0; i < 8; i++) barrier_init(barriers + ROWS_FULL + i * 8, 4);
    barrier_init_fence();
  }
  __syncthreads();

  auto head = [&](u32 step) -> const Head& { return *(const Head*)(shared + HEADS_AT + step % HEADS * HEAD_BYTES); };
  auto load_head = [&](u32 step) {
    if (step >= steps || lane != 0) return;
    Place at = place(task, step);
    u32 barrier = barriers + HEAD_FULL + step % HEADS * 8;
    barrier_expect(barrier, HEAD_BYTES);
    bulk_load(shared_address(&head(step)), task.heads + (u64)at.tile * task.groups + at.group, HEAD_BYTES, barrier);
  };
  auto load_raw = [&](u32 step, u32 slot) {   // a lane a channel
    if (step >= steps) return;
    Place at = place(task, step);
    barrier_wait(barriers + HEAD_FULL + step % HEADS * 8, step / HEADS & 1);
    const Head& table = head(step);
    u32 bytes = table.chunks * 16, barrier = barriers + RAW_FULL + slot * 8;
    if (lane == 0) barrier_expect(barrier, GROUP * bytes);
    __syncwarp();
#pragma unroll
    for (u32 row = 0; row < GROUP; row += 32) {
      u32 channel = smaller(at.group * GROUP + row + lane, task.channels - 1);
      const u8* from = task.input + (u64)channel * task.pitch + (at.time + table.source[row + lane]);
      bulk_load(base + RAW_AT + (slot * GROUP + row + lane) * RAW_BYTES, from, bytes, barrier);
    }
  };
  if (warp == 0) {
    for (u32 step = 0; step < AHEAD; step++) load_head(step);
    for (u32 step = 0; step < RING; step++) load_raw(step, step);
  }

  auto stage_step = [&](u32 step, u32 slot, u32 phase) {   // each warpgroup 16 channels, in turns if there are 32
    if (step >= steps || (SUBS == 2 && ((team ^ step) & 1))) return;
    barrier_wait(barriers + STAGED_FREE + slot * 8, phase ^ 1);
    barrier_wait(barriers + RAW_FULL + slot * 8, phase);
    const Head& table = head(step);
    u32 sub = SUBS == 2 ? team >> 1 : team, quad = slab * 32 + lane;
    if (quad < table.quads)
      stage(shared + RAW_AT + (slot * GROUP + sub * 16) * RAW_BYTES + quad * 4, (const uint4*)(table.align + sub * 16),
            shared + slot * STAGED_BYTES + sub * SUB_BYTES + quad * 64, lane);
    fence_async_shared();
    __syncwarp();
    if (lane == 0) barrier_arrive(barriers + STAGED_FULL + slot * 8);
  };

  Sums sums;
#pragma unroll
  for (u32 i = 0; i < 4 * WORDS; i++) sums[i / WORDS][i % WORDS] = 0;
  const u32 rows_full = barriers + ROWS_FULL + slab * 8, rows_free = barriers + ROWS_FREE + slab * 8;
  u32* const high = (u32*)(shared + HIGH_AT) + threadIdx.x;
  auto accumulate_step = [&](u32 step) {   // the step before
    if (step == 0) return;
    barrier_wait(rows_full, (step - 1) & 1);
    const u32* rows = (const u32*)(shared + ROWS_AT) + lane;
    const uint4 at = ((const uint4*)head(step - 1).row)[slab * 4 + team];
    const u32 begin[4] = {at.x, at.y, at.z, at.w};
#pragma unroll
    for (u32 i = 0; i < 4 * WORDS; i++) sums[i / WORDS][i % WORDS] += rows[begin[i / WORDS] + 32 * (i % WORDS)];
    __syncwarp();
    if (lane == 0) barrier_arrive(rows_free);
    if (step < steps) barrier_wait(rows_free, (step - 1) & 1);
  };
  auto settle = [&](u32 step, u32 group) {   // what is due after the step before `step`, whose group is the one before
    if (step == 0) return;
    const u32 last = (group == 0 ? task.groups : group) - 1;
    if ((last & task.flush) == task.flush) {
#pragma unroll
      for (u32 i = 0; i < 4 * WORDS; i++) {
        u32& sum = sums[i / WORDS][i % WORDS];
        u32 above = __byte_perm(sum, 0, 0x4341);
        high[i * THREADS] = last == task.flush ? above : high[i * THREADS] + above;
        sum &= 0x00ff00ffu;
      }
    }
    if (group != 0) return;
    Place done = place(task, step - 1);
    write(task, sums, high, last >= task.flush, task.trials + done.tile * TRIALS + slab * 16 + team * 4, done.time, lane);
#pragma unroll
    for (u32 i = 0; i < 4 * WORDS; i++) sums[i / WORDS][i % WORDS] = 0;
  };

  // Where this lane's eighth of a stored matrix goes.
  const u32 to = base + ROWS_AT + (slab * 16 + (lane & 15)) * ROW_WORDS * 4 + (lane >> 4) * 16;
  auto multiply_step = [&](u32 step, u32 slot, const uint4 (&bits)[HALVES], const uint4* bits_at, auto meanwhile) {
    const Head& table = head(step);
    const Part part = {descriptor(base + slot * STAGED_BYTES), to, table.low[slab], (team + step) & 3, table.blocks};
    const u32 window = table.window;
    if (window <= 3) multiply<3>(part, bits, meanwhile);
    else if (window == 4) multiply<4>(part, bits, meanwhile);
    else if (window == 5) multiply<5>(part, bits, meanwhile);
    else if (HALVES == 2) multiply_parts<8, 8>(part, bits[0], bits[HALVES - 1], HALF_STEP, meanwhile);
    else if (window == 6) multiply<6>(part, bits, meanwhile);
    else if (SETS == 1 || window <= 8) multiply<8>(part, bits, meanwhile);
    else if (window <= 12) multiply_parts<8, 4>(part, bits[0], __ldg(bits_at + HOT_WORDS), 8, meanwhile);
    else multiply_parts<8, 8>(part, bits[0], __ldg(bits_at + HOT_WORDS), 8, meanwhile);
    __syncwarp();
    if (lane == 0) barrier_arrive(rows_full), barrier_arrive(barriers + STAGED_FREE + slot * 8);
  };

  auto bits_of = [&](u32 step) {
    Place at = place(task, step);
    return task.hot + ((u64)at.tile * task.groups + at.group) * (HOTS * HOT_WORDS) + slab * 32 + lane;
  };
  const uint4* bits_at = bits_of(0);
  uint4 bits[HALVES];
#pragma unroll
  for (u32 half = 0; half < HALVES; half++) bits[half] = __ldg(bits_at + half * HOT_WORDS);
  stage_step(0, 0, 0);
  u32 slot = 0, phase = 0, group = 0;
  for (u32 step = 0; step < steps; step++) {
    const u32 next_slot = slot == RING - 1 ? 0 : slot + 1, next_phase = phase ^ (slot == RING - 1);
    barrier_wait(barriers + STAGED_FULL + slot * 8, phase);
    if (warp == step % WARPS) {
      load_raw(step + RING, slot);
      load_head(step + AHEAD);
    }
    if (STAGE_FIRST && (team & 1)) stage_step(step + 1, next_slot, next_phase);
    multiply_step(step, slot, bits, bits_at, [&] { accumulate_step(step); });
    settle(step, group);
    group = group + 1 == task.groups ? 0 : group + 1;
    bits_at = group == 0 ? bits_of(step + 1) : bits_at + HOTS * HOT_WORDS;
    if (step + 1 < steps) {
#pragma unroll
      for (u32 half = 0; half < HALVES; half++) bits[half] = __ldg(bits_at + half * HOT_WORDS);
    }
    if (!(STAGE_FIRST && (team & 1))) stage_step(step + 1, next_slot, next_phase);
    slot = next_slot, phase = next_phase;
  }
  accumulate_step(steps);
  settle(steps, 0);
#endif
}
