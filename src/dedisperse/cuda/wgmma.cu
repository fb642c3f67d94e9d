// Exact dedispersion of 8-bit samples on Hopper: one-hot matrix products per channel group, then shifted
// accumulation.
//
//   output[d][t] = offset + sum_c input[c][t + shift(d, c)]
//
// A block computes 64 trials x TIMES output times and walks the band in groups of GROUP channels.
//  1. Stage: producer warps shift each channel of the group by its smallest relative shift and interleave 16
//     channels, so that the next sample is 16 bytes further.
//  2. Multiply: for each position p of the window, the one-hot matrix A_p[trial][channel] = (relative shift == p)
//     multiplies the staged samples, read at an offset of 16 p bytes. The sum of the products is each trial's group
//     sum in the trial's own time frame, whose shift is even. Frames are skewed in time so that those of 64 trials
//     stay close over the whole band.
//  3. Accumulate: the group sums pass through shared memory as u16 pairs. Each warp reads them at each trial's frame
//     and adds them in registers. Multiples of 256 move to a second accumulator before 16 bits overflow, so that up
//     to 65536 channels are exact.
// No barrier synchronizes the whole block inside the loop: ring buffers let warps run up to one group apart.
//
// TEAMS: consumer warpgroups, 2 or 4. FLIGHT: column blocks of products in flight in each warpgroup. TIMES: output
// times of a block, a multiple of 64. GROUP: channels of a group, 32 or 64. RING: staged groups in the ring. DEPTH:
// 32-channel units being copied from global memory. SETS: sets of 8 window positions; with GROUP 64 it is 1. QUICK: 1
// for a slower kernel of the same results that compiles in a third of the time, 0 otherwise.
#include "device.cuh"

constexpr u32 WARPS = 4 * TEAMS, THREADS = 32 * WARPS + 128, TRIALS = 64;   // WARPS consume; four more warps stage
constexpr u32 HALVES = GROUP / 32, SUBS = GROUP / 16;
constexpr u32 OWN = 16 / TEAMS, WORDS = TIMES / 64;   // trials of a warp; words (two sums each) of a trial per lane
constexpr u32 MOST = TIMES < 384 ? TIMES + 128 : 512, COLUMNS = MOST + 8;   // staged samples; 8 of padding
constexpr u32 ROW_BYTES = 2 * MOST + 16;   // sums of a trial; eight rows use different banks
constexpr u32 SUB_BYTES = COLUMNS * 16, STAGED_BYTES = SUBS * SUB_BYTES, HALF_STEP = 2 * SUB_BYTES / 16;
constexpr u32 SETS_OF_BITS = HALVES * SETS, HEADS = RING == 2 ? 4 : 8;
static_assert(GROUP % 32 == 0 && SETS_OF_BITS <= 2 && TIMES % 64 == 0 && TIMES < 512 && RING >= 2, "");

// Parameters of the products and sums of 64 trials and one group; built on the host.
struct __align__(16) Head {
  u32 row[TRIALS];                 // byte offset of each trial's sums in the row buffer
  u32 window, blocks, unused[2];   // window positions; blocks of 64 columns
  uint4 bits[SETS_OF_BITS][4][32]; // axes set, 16 trials, lane: a byte per trial and channel, bit = relative shift
};
// Parameters for staging 32 channels.
struct __align__(16) Source {
  i32 first[32];      // start of each channel's raw row in bytes, a multiple of 16
  uint2 align[32];    // per channel: bytes from there to the first sample's word; bit shift within the word
  u32 chunks, unused[3];   // 16-byte chunks of a raw row
};
struct Entry { Head head; Source source[HALVES]; };

// Each of the four staging warps loads a quarter of the columns: CHUNKS 16-byte chunks of 32 raw rows, and their
// alignment.
constexpr u32 CHUNKS = 9, RAW_BYTES = 16 * CHUNKS, RAW_SLOT = 32 * RAW_BYTES + 256;

// Shared-memory layout.
constexpr u32 RAW_AT = RING * STAGED_BYTES, ROWS_AT = RAW_AT + 4 * (DEPTH + 1) * RAW_SLOT;
constexpr u32 HIGH_AT = ROWS_AT + TRIALS * ROW_BYTES, HEADS_AT = HIGH_AT + TRIALS * TIMES * 2;
constexpr u32 BARRIERS_AT = HEADS_AT + HEADS * sizeof(Head);
constexpr u32 HEAD_FULL = 0, STAGED_FULL = HEADS * 8, STAGED_FREE = STAGED_FULL + RING * 8;
constexpr u32 ROWS_FULL = STAGED_FREE + RING * 8, ROWS_FREE = ROWS_FULL + 32;
static_assert(sizeof(Head) % 16 == 0 && BARRIERS_AT + ROWS_FREE + 32 <= 232448, "a block's shared memory");

struct Task {
  i32* output;          // axes dm, time
  const u8* input;      // aligned to 16; axes channel, time
  const Entry* entries; // axes tile of trials, group
  const int2* trials;   // axes tile, 64: row of the output or -1; skew of its times
  u64 pitch, stride;
  i32 lead, times, offset;   // the first `lead` times precede the output and are not written
  u32 channels, tiles, groups, jobs, flush;   // flush: groups between moves of multiples of 256 (2^k), minus 1
};

// Tile of trials, channel group and first output time of one step of this block.
struct Place { u32 tile, group; i32 time; };
INLINE Place place(const Task& task, u32 step) {
  u32 turn = step / task.groups, job = blockIdx.x + turn * gridDim.x;
  return {job % task.tiles, step - turn * task.groups, (i32)(job / task.tiles * TIMES)};
}

// `wgmma` matrix descriptor without swizzle: SUB_BYTES between 16-channel slabs, 128 bytes between groups of 8
// samples.
INLINE u64 descriptor(u32 address) {
  return (u64)((address & 0x3ffff) >> 4) | ((u64)(SUB_BYTES >> 4) << 16) | ((u64)(128 >> 4) << 32);
}

// Builds the one-hot matrices A_p of WINDOW positions.
template <u32 WINDOW> INLINE void one_hot(u32 (&a)[WINDOW][4], uint4 hot) {
#pragma unroll
  for (u32 p = 0; p < WINDOW; p++) {
    a[p][0] = (hot.x >> p) & 0x01010101u, a[p][1] = (hot.y >> p) & 0x01010101u;
    a[p][2] = (hot.z >> p) & 0x01010101u, a[p][3] = (hot.w >> p) & 0x01010101u;
#pragma unroll
    for (u32 i = 0; i < 4; i++) keep(a[p][i]);
  }
}
// Starts the products of the one-hot matrices with 64 columns.
template <u32 WINDOW> INLINE void products(i32 (&c)[32], const u32 (&a)[WINDOW][4], u64 staged, i32 add) {
#pragma unroll
  for (u32 p = 0; p < WINDOW; p++) wgmma_64x64x32_u8(c, a[p], staged + p, p ? 1 : add);
}
// Stores the sums of 16 trials over 64 columns to their rows.
INLINE void store(const i32 (&c)[32], u32 to) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    u32 pair[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) pair[k] = __byte_perm(c[8 * i + 2 * k], c[8 * i + 2 * k + 1], 0x5410);
    store_matrices(to + 32 * i, pair[0], pair[1], pair[2], pair[3]);
  }
}

// Work of one warpgroup for one group: the column blocks first, first + TEAMS, ...
struct Part { u64 staged; u32 to, first, blocks; };

// Multiplies all column blocks of this warpgroup. `meanwhile` runs while the first products execute; `ready` returns
// once the row buffer may be overwritten.
template <u32 WINDOW, class Meanwhile, class Ready>
INLINE void multiply(const Part& part, const uint4 (&bits)[HALVES], Meanwhile meanwhile, Ready ready) {
  u32 a[HALVES][WINDOW][4];
#pragma unroll
  for (u32 half = 0; half < HALVES; half++) one_hot(a[half], bits[half]);
  auto begin = [&](i32 (&c)[32], u32 block) {
    wgmma_fence();
#pragma unroll
    for (u32 half = 0; half < HALVES; half++) products(c, a[half], part.staged + half * HALF_STEP + block * 64, (i32)half);
    wgmma_commit();
  };
#if FLIGHT == 2
  for (u32 block = part.first; block < part.blocks; block += 2 * TEAMS) {
    // The second block of a pair may lie past the last; its products are computed but not stored.
    i32 c[32], d[32];
    begin(c, block);
    begin(d, block + TEAMS);
    if (block == part.first) meanwhile(), ready();
    wgmma_wait<1>();
    store(c, part.to + block * 128);
    wgmma_wait<0>();
    if (block + TEAMS < part.blocks) store(d, part.to + (block + TEAMS) * 128);
  }
#else
  for (u32 block = part.first; block < part.blocks; block += TEAMS) {
    i32 c[32];
    begin(c, block);
    if (block == part.first) meanwhile(), ready();
    wgmma_wait<0>();
    store(c, part.to + block * 128);
  }
#endif
}
// Like `multiply`, for windows whose A does not fit the registers: four positions at a time, of 8 in each set of
// bits.
template <class Meanwhile, class Ready>
INLINE void multiply_parts(const Part& part, const Head& table, u32 slab, u32 lane, Meanwhile meanwhile, Ready ready) {
  const u32 parts = (table.window + 3) / 4, most = parts * HALVES;
  for (u32 block = part.first; block < part.blocks; block += TEAMS) {
    i32 c[32];
#pragma unroll 1
    for (u32 k = 0; k < most; k++) {
      const u32 half = HALVES == 2 && k >= parts ? 1 : 0, four = k - half * parts;
      uint4 bits = table.bits[four / 2 + half][slab][lane];
      if (four & 1) bits = {bits.x >> 4, bits.y >> 4, bits.z >> 4, bits.w >> 4};
      u32 a[4][4];
      one_hot(a, bits);
      wgmma_fence();
      products(c, a, part.staged + half * HALF_STEP + four * 4 + block * 64, (i32)k);
      wgmma_commit();
      if (block == part.first && k == 0) meanwhile();
      if (block == part.first && k == most - 1) ready();
      wgmma_wait<0>();
    }
    store(c, part.to + block * 128);
  }
}

// Aligns four samples of 16 channels per lane to the tile's first sample and interleaves them by channel.
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
  // Each lane starts with a different one of its four samples, so that the 16-byte stores of eight lanes cover all
  // banks.
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

// Sums of a warp's OWN trials, two u16 sums in a word, without the multiples of 256 already moved to `high`.
using Sums = u32[OWN][WORDS];

INLINE void write(const Task& task, const Sums& sums, const u32* high, bool moved, const int2* trials, i32 time, u32 lane) {
#pragma unroll
  for (u32 d = 0; d < OWN; d++) {
    int2 trial = trials[d];
    if (trial.x < 0) continue;
    i32* row = task.output + trial.x * task.stride;
#pragma unroll
    for (u32 k = 0; k < WORDS; k++) {
      u32 low = sums[d][k], above = moved ? high[(d * WORDS + k) * 32 * WARPS] : 0;
      i32 t = time + trial.y - task.lead + (i32)(2 * (lane + 32 * k));
      if (t >= 0 && t < task.times) row[t] = (i32)((low & 0xffff) + ((above & 0xffff) << 8)) + task.offset;
      if (t >= -1 && t + 1 < task.times) row[t + 1] = (i32)((low >> 16) + ((above >> 16) << 8)) + task.offset;
    }
  }
}

KERNEL __launch_bounds__(THREADS, 1) dedisperse_wgmma(i32* output, const u8* input, const Entry* entries, const int2* trials,
    u64 pitch, u64 stride, i32 lead, i32 times, i32 offset, u32 channels, u32 tiles, u32 groups, u32 jobs, u32 flush) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Task task = {output, input, entries, trials, pitch, stride, lead, times, offset, channels, tiles, groups, jobs, flush};
  const u32 lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), team = warp >> 2, slab = warp & 3;
  const u32 base = shared_address(shared), barriers = base + BARRIERS_AT;
  const u32 steps = (task.jobs - blockIdx.x + gridDim.x - 1) / gridDim.x * task.groups;

  if (threadIdx.x == 0) {
    for (u32 i = 0; i < HEADS; i++) barrier_init(barriers + HEAD_FULL + i * 8, 1);
    for (u32 i = 0; i < RING; i++) {
      barrier_init(barriers + STAGED_FULL + i * 8, 4 * HALVES);
      barrier_init(barriers + STAGED_FREE + i * 8, WARPS);
    }
    for (u32 i = 0; i < 8; i++) barrier_init(barriers + ROWS_FULL + i * 8, TEAMS);
    barrier_init_fence();
  }
  __syncthreads();

  if (warp >= WARPS) {
    // Producer warps: each unit is 32 channels, and DEPTH units are in flight from global memory.
    const u32 quarter = warp - WARPS, units = steps * HALVES;
    unsigned char* const raw = shared + RAW_AT + quarter * (DEPTH + 1) * RAW_SLOT;
    // Position of the next unit to fetch.
    u32 fetched = 0, group = 0, half = 0;
    const u8* row_0 = nullptr;
    const Entry* entry = nullptr;
    auto fetch = [&] {
      if (fetched < units) {
        if (group == 0 && half == 0) {
          Place at = place(task, fetched / HALVES);
          row_0 = task.input + at.time + quarter * 128;
          entry = task.entries + (u64)at.tile * task.groups;
        }
        const Source& source = entry->source[half];
        const u32 channel = smaller(group * GROUP + half * 32, task.channels - 1), row = smaller(lane, task.channels - 1 - channel);
        const u32 offset = row * (u32)task.pitch + (u32)__ldg(source.first + lane);
        const u32 chunks = __ldg(&source.chunks), to = shared_address(raw + fetched % (DEPTH + 1) * RAW_SLOT);
        const u8* const from = row_0 + (u64)channel * task.pitch;
        const u32 chunk = lane & 7;
        const bool wanted = quarter * 8 + chunk < chunks;
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
          i32 begin = (i32)__shfl_sync(~0u, offset, 4 * k + lane / 8);
          if (wanted) copy_async_16(to + (4 * k + lane / 8) * RAW_BYTES + chunk * 16, from + begin + chunk * 16);
        }
        if (quarter * 8 + 8 < chunks) copy_async_16(to + lane * RAW_BYTES + 128, from + (i32)offset + 128);
        if (lane < 16) copy_async_16(to + 32 * RAW_BYTES + lane * 16, (const uint4*)source.align + lane);
        if (++half == HALVES) half = 0, entry++, group = group + 1 == task.groups ? 0 : group + 1;
      }
      copy_async_commit();
      fetched++;
    };
    auto load_head = [&](u32 step) {
      if (step >= steps || quarter != 0 || lane != 0) return;
      Place at = place(task, step);
      u32 slot = step % HEADS, barrier = barriers + HEAD_FULL + slot * 8;
      barrier_expect(barrier, sizeof(Head));
      bulk_load(base + HEADS_AT + slot * sizeof(Head), &task.entries[(u64)at.tile * task.groups + at.group].head, sizeof(Head), barrier);
    };
    load_head(0);
    for (u32 unit = 0; unit < DEPTH; unit++) fetch();
    for (u32 unit = 0; unit < units; unit++) {
      const u32 step = unit / HALVES, slot = step % RING;
      __syncwarp();
      fetch();
      barrier_wait(barriers + STAGED_FREE + slot * 8, (step / RING & 1) ^ 1);
      if (unit % HALVES == 0) load_head(step + 1);
      copy_async_wait<DEPTH>();
      __syncwarp();
      const unsigned char* from = raw + unit % (DEPTH + 1) * RAW_SLOT;
#pragma unroll 1
      for (u32 sub = 0; sub < 2; sub++)
        if ((quarter * 32 + lane) * 4 < COLUMNS - 8)
          stage(from + sub * 16 * RAW_BYTES + lane * 4, (const uint4*)(from + 32 * RAW_BYTES + sub * 128),
                shared + slot * STAGED_BYTES + (unit % HALVES * 2 + sub) * SUB_BYTES + (quarter * 32 + lane) * 64, lane);
      fence_async_shared();
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers + STAGED_FULL + slot * 8);
    }
    return;
  }

  auto head = [&](u32 step) -> const Head& { return *(const Head*)(shared + HEADS_AT + step % HEADS * sizeof(Head)); };
  Sums sums;
#pragma unroll
  for (u32 i = 0; i < OWN * WORDS; i++) sums[i / WORDS][i % WORDS] = 0;
  const u32 rows_full = barriers + ROWS_FULL + slab * 8, rows_free = barriers + ROWS_FREE + slab * 8;
  u32* const high = (u32*)(shared + HIGH_AT) + threadIdx.x;
  auto accumulate_step = [&](u32 step) {   // adds the group sums of the previous step
    if (step == 0) return;
    barrier_wait(rows_full, (step - 1) & 1);
    const unsigned char* rows = shared + ROWS_AT + lane * 4;
    const u32* row[OWN];
#pragma unroll
    for (u32 k = 0; k < OWN / 4; k++) {
      const uint4 at = ((const uint4*)head(step - 1).row)[slab * 4 + team * (OWN / 4) + k];
      row[4 * k] = (const u32*)(rows + at.x), row[4 * k + 1] = (const u32*)(rows + at.y);
      row[4 * k + 2] = (const u32*)(rows + at.z), row[4 * k + 3] = (const u32*)(rows + at.w);
    }
#pragma unroll
    for (u32 i = 0; i < OWN * WORDS; i++) sums[i / WORDS][i % WORDS] += row[i / WORDS][32 * (i % WORDS)];
    __syncwarp();
    if (lane == 0) barrier_arrive(rows_free);
  };
  auto settle = [&](u32 step, u32 group) {   // after the previous step: move multiples of 256, write finished tiles
    if (step == 0) return;
    const u32 last = (group == 0 ? task.groups : group) - 1;
    if ((last & task.flush) == task.flush) {
#pragma unroll
      for (u32 i = 0; i < OWN * WORDS; i++) {
        u32& sum = sums[i / WORDS][i % WORDS];
        u32 above = __byte_perm(sum, 0, 0x4341);
        high[i * 32 * WARPS] = last == task.flush ? above : high[i * 32 * WARPS] + above;
        sum &= 0x00ff00ffu;
      }
    }
    if (group != 0) return;
    Place done = place(task, step - 1);
    write(task, sums, high, last >= task.flush, task.trials + done.tile * TRIALS + slab * 16 + team * OWN, done.time, lane);
#pragma unroll
    for (u32 i = 0; i < OWN * WORDS; i++) sums[i / WORDS][i % WORDS] = 0;
  };

  // Shared-memory address for this lane's part of `stmatrix`.
  const u32 to = base + ROWS_AT + (slab * 16 + (lane & 15)) * ROW_BYTES + (lane >> 4) * 16;
  u32 slot = 0, phase = 0, group = 0;
  for (u32 step = 0; step < steps + QUICK; step++) {
    if (QUICK && step == steps) {
      accumulate_step(step);
    } else {
      barrier_wait(barriers + HEAD_FULL + step % HEADS * 8, step / HEADS & 1);
      const Head& table = head(step);
      uint4 bits[HALVES];
#pragma unroll
      for (u32 half = 0; half < HALVES; half++) bits[half] = table.bits[half][slab][lane];
      const Part part = {descriptor(base + slot * STAGED_BYTES), to, (team + step) % TEAMS, table.blocks};
      const u32 window = table.window;
      auto meanwhile = [&] { accumulate_step(step); };
      auto ready = [&] { if (step > 0) barrier_wait(rows_free, (step - 1) & 1); };
      barrier_wait(barriers + STAGED_FULL + slot * 8, phase);
      if (QUICK || window > (HALVES == 2 ? 4 : 6)) multiply_parts(part, table, slab, lane, meanwhile, ready);
      else if (window <= 3) multiply<3>(part, bits, meanwhile, ready);
      else if (window == 4) multiply<4>(part, bits, meanwhile, ready);
      else if (HALVES == 1 && window == 5) multiply<HALVES == 1 ? 5 : 4>(part, bits, meanwhile, ready);
      else multiply<HALVES == 1 ? 6 : 4>(part, bits, meanwhile, ready);
      __syncwarp();
      if (lane == 0) barrier_arrive(rows_full), barrier_arrive(barriers + STAGED_FREE + slot * 8);
    }
    settle(step, group);
    group = group + 1 == task.groups ? 0 : group + 1;
    phase ^= slot == RING - 1, slot = slot == RING - 1 ? 0 : slot + 1;
  }
  if (!QUICK) {
    accumulate_step(steps);
    settle(steps, 0);
  }
#endif
}
