// What correlations on Hopper share: which job is whose, rings of slots in shared memory, and how sums leave.
#pragma once
#include "device.cuh"

constexpr u32 THREADS = 384;
// Registers of a thread of each of the three warpgroups, together: those that a block begins with. It waits forever for more.
constexpr u32 REGISTERS = 3 * (65536 / THREADS / 8 * 8);
constexpr u32 SLOT = 128 * 128;   // 128 inputs x 128 bytes
constexpr u32 CHANNELS = 128 / EDGE;   // channels of a job: more than one where all inputs are one small tile
// More columns beside others have no registers, nor of 4 bits any beside more than one whole block.
constexpr bool SMALL = EDGE < 128, BESIDE = WIDTH == 16 && (SHIFT == 0 || LONE), RAGGED = !SMALL && WIDTH < 128 && !BESIDE;
static_assert(!SMALL || WIDTH == 128, "small tiles are whole");
constexpr u32 EXTRA = BESIDE ? WIDTH : 0;   // columns of the last block that stand beside (before) those of a tile on the diagonal
constexpr u32 PRODUCTS = 128 + EXTRA;       // columns of a warpgroup at most, and those whose sums are handed over
constexpr u32 PITCH = EDGE * 8, TILE = EDGE * PITCH;   // bytes of a row of sums and of a tile
constexpr u32 STAGING = 2 * 4096;   // of each warp that multiplies: two parts of 8 rows x 64 sums

struct Work {
  u64 sums;   // axes channel, tile, row, column; (re, im) i32
  u32 channels, inputs, blocks, tiles, jobs;
  u32 halves;   // pieces of 64 bytes along time
  u32 add;      // 1 adds to what is there
  u32* drawn;   // jobs that blocks have drawn beside their first ones, and blocks that are done: both 0 between launches
};
// A tile of sums, or the small tiles of CHANNELS channels; `tile` is its number among those of all channels.
struct Place { u32 tile, channel, row, column; };

INLINE Place place(const Work& work, u32 job) {
  if constexpr (LONE) {
    return {job * (BESIDE ? work.tiles : CHANNELS), job * CHANNELS, 0, 0};
  } else {
    // Beside others, the last block has no jobs of its own; its tiles are the last ones.
    const u32 each = BESIDE ? work.tiles - work.blocks : work.tiles;
    const u32 channel = job / each, tile = job - channel * each;
    u32 row = (u32)((sqrtf(8.f * (float)tile + 1.f) - 1.f) * .5f);
    while (row * (row + 1) / 2 > tile) row--;
    while ((row + 1) * (row + 2) / 2 <= tile) row++;
    return {BESIDE ? channel * work.tiles + tile : job, channel, row, tile - row * (row + 1) / 2};
  }
}
template <u32 VALUE> struct Constant { static constexpr u32 value = VALUE; };

// A place in a ring of COUNT slots, and the parity of its round.
template <u32 COUNT> struct Ring {
  u32 slot, parity;
  INLINE void advance() {
    if (++slot == COUNT) slot = 0, parity ^= 1;
  }
  INLINE Ring next() const {
    Ring result = *this;
    result.advance();
    return result;
  }
};

// Arrivals of a warp that has read or written shared memory: one lane's for all, after __syncwarp. Where jobs are drawn, or threads
// widen what others read, each lane's own: else racecheck does not see that they meet.
constexpr u32 ARRIVALS = DRAWN || (BESIDE && SHIFT > 0) ? 32 : 1;
INLINE void warp_arrive(u32 barrier) {
  if constexpr (ARRIVALS == 1) __syncwarp();
  if (ARRIVALS == 32 || (threadIdx.x & 31) == 0) barrier_arrive(barrier);
}

// Jobs that the thread that brings may have told of before the other warps have asked for them.
constexpr u32 TOLD = 4, TICKETS = TOLD * 32;
constexpr u32 NONE_LEFT = ~0u;
// Places of jobs in shared memory at `at`, each with barriers of those who wait for it and of those who have read it.
INLINE u32 told(u32 at, u32 slot) { return at + TOLD * 16 + slot * 8; }
INLINE u32 asked(u32 at, u32 slot) { return at + TOLD * 24 + slot * 8; }
INLINE void init_tickets(u32 at, u32 warps) {
  if constexpr (DRAWN)
    for (u32 i = 0; i < TOLD; i++) barrier_init(told(at, i), 1), barrier_init(asked(at, i), warps * ARRIVALS);
}

// A job that a warp goes through. One that was drawn is read again where it is wanted, since registers are few.
struct Told {
  const uint4* words;
  Place own;
  INLINE Place operator()() const {
    if constexpr (!DRAWN) return own;
    const uint4 at = *words;
    // The same for all lanes, and known to be.
    return {__shfl_sync(~0u, at.x, 0), __shfl_sync(~0u, at.y, 0), __shfl_sync(~0u, at.z, 0), __shfl_sync(~0u, at.w, 0)};
  }
};

// A block's jobs: one of each round, in another place of it each time, so that costly tiles fall to all blocks.
template <class Do> INLINE void of_rounds(const Work& work, Do what) {
  for (u32 first = 0, turn = blockIdx.x; first < work.jobs; first += gridDim.x) {
    if (first + turn < work.jobs) what(place(work, first + turn));
    turn = turn + 1 == gridDim.x ? 0 : turn + 1;
  }
}

// What the thread does that brings. DRAWN: a block's first job is its own, and each further one the next that no block has
// drawn yet, since blocks are not equally fast. This thread draws long before the job is wanted, and tells the other warps.
template <class Do> INLINE void draw_jobs(const Work& work, unsigned char* shared, u32 tickets, Do what) {
  if constexpr (!DRAWN) return of_rounds(work, what);
  const u32 at = shared_address(shared) + tickets;
  Ring<TOLD> ring = {0, 0};
  for (u32 job = blockIdx.x;;) {
    const bool is_any = job < work.jobs;
    const u32 next = is_any ? gridDim.x + atomicAdd(work.drawn, 1) : 0;
    const Place own = is_any ? place(work, job) : Place{NONE_LEFT, 0, 0, 0};
    barrier_wait(asked(at, ring.slot), ring.parity ^ 1);
    *(uint4*)(shared + tickets + ring.slot * 16) = make_uint4(own.tile, own.channel, own.row, own.column);
    barrier_arrive(told(at, ring.slot));
    if (!is_any) break;
    what(own);
    ring.advance();
    job = next;
  }
  // All blocks have drawn their last by then.
  if (atomicInc(work.drawn + 1, gridDim.x - 1) == gridDim.x - 1) atomicExch(work.drawn, 0);
}
// What the other warps do.
template <class Do> INLINE void for_each_job(const Work& work, unsigned char* shared, u32 tickets, Do what) {
  if constexpr (!DRAWN) return of_rounds(work, [&](const Place& job) { what(Told{nullptr, job}); });
  const u32 at = shared_address(shared) + tickets;
  for (u32 turn = 0;; turn++) {
    const u32 slot = turn % TOLD;
    barrier_wait(told(at, slot), turn / TOLD & 1);
    const Told job = {(const uint4*)(shared + tickets) + slot, {}};
    if (job().tile == NONE_LEFT) break;
    what(job);
    warp_arrive(asked(at, slot));
  }
}

// A register of a', by which rows are multiplied for imaginary parts: (im, ~re) where `a` is (re, im). Bytes hold samples' parts in
// turn; of 4 bits, registers 0 and 1 hold real parts and the others imaginary ones.
INLINE u32 turned(const u32 (&a)[4], u32 q) {
  if constexpr (SHIFT == 0) return __byte_perm(a[q], 0, 0x2301) ^ 0xff00ff00u;
  else return q < 2 ? a[q + 2] : ~a[q - 2];
}

// One warp's 16 x PRODUCTS products: elements 4 j .. 4 j + 3 are row lane / 4, columns 8 j + 2 (lane % 4) and the next, then the
// same columns eight rows further.
struct Products {
  i32 re[PRODUCTS / 2], im[PRODUCTS / 2];
  INLINE void clear() {
#pragma unroll
    for (u32 i = 0; i < PRODUCTS / 2; i++) re[i] = im[i] = 0;
  }
};
// Two neighbouring columns: `pair` is 2 j, + 1 for eight rows further; `column`: their own sums, which the complement left out.
INLINE int4 sum_of(const Products& of, u32 pair, int2 column) {
  return make_int4(of.re[2 * pair] >> SHIFT, (of.im[2 * pair] + column.x) >> SHIFT, of.re[2 * pair + 1] >> SHIFT,
                   (of.im[2 * pair + 1] + column.y) >> SHIFT);
}

// Where a warp's sums go.
struct Target {
  unsigned char* to;         // the tile's first byte
  u32 row, rows;             // this warp's first row; the tile's rows that exist
  const int2* columns;       // the columns' own sums, in shared memory
  unsigned char* staging;    // this warp's, in shared memory
  bool diagonal, add;        // diagonal: nothing right of it is wanted
};

// Columns FIRST .. FIRST + N of the products to columns `column` .. of the target, by way of shared memory.
template <u32 FIRST, u32 N> INLINE void store_staged(const Products& of, const Target& target, u32 column, u32 lane) {
  const u32 odd = lane >> 2 & 1;
  const int2* const columns = target.columns + (lane & 3);
  // Neighbouring rows begin with another chunk, so that eight lanes fall on all banks.
  unsigned char* const to = target.staging + (lane >> 2) * 512 + (lane & 3) * 16;
#pragma unroll
  for (u32 part = 0; part < 2 * ((N + 63) / 64); part++) {
    constexpr u32 GROUPS = (N + 63) / 64;
    const u32 lower = part / GROUPS, group = part % GROUPS, width = N - 64 * group < 64 ? N - 64 * group : 64;
    const u32 buffer = (part & 1) * 4096;
    bulk_wait_read<1>();
    __syncwarp();
#pragma unroll
    for (u32 j = 0; j < width / 8; j += 2) {
      const u32 first = FIRST + 64 * group + 8 * j, pair = first / 4 + lower;
      const int4 x = sum_of(of, pair, columns[first / 2]), y = sum_of(of, pair + 2, columns[first / 2 + 4]);
      *(int4*)(to + buffer + j * 64 + odd * 64) = odd ? y : x;
      *(int4*)(to + buffer + j * 64 + (odd ^ 1) * 64) = odd ? x : y;
    }
    fence_async_shared();
    __syncwarp();
    if (lane < 8) {
      const u32 row = target.row + 8 * lower + lane, from = shared_address(target.staging) + buffer + lane * 512;
      unsigned char* const at = target.to + row * PITCH + (column + 64 * group) * 8;
      // Columns come in pairs.
      const i32 wanted = target.diagonal ? smaller((i32)(row + 2 - column - 64 * group) & ~1, (i32)width) : (i32)width;
      if (row < target.rows && wanted > 0) {
        if (target.add) bulk_add(at, from, (u32)wanted * 8);
        else bulk_store(at, from, (u32)wanted * 8);
      }
      bulk_commit();
    }
  }
}

INLINE int4 exchange(int4 value, u32 lanes) {
  return make_int4(__shfl_xor_sync(~0u, value.x, lanes), __shfl_xor_sync(~0u, value.y, lanes), __shfl_xor_sync(~0u, value.z, lanes),
                   __shfl_xor_sync(~0u, value.w, lanes));
}
INLINE void put(int4* to, int4 value, bool add) {
  if (add) {
    const int4 old = *to;
    value.x += old.x, value.y += old.y, value.z += old.z, value.w += old.w;
  }
  *to = value;
}
// The same from registers to memory. Lanes of neighbouring rows exchange halves, so that an instruction writes whole lines.
template <u32 FIRST, u32 N> INLINE void store_direct(const Products& of, const Target& target, u32 column, u32 lane) {
  const bool odd = lane >> 2 & 1;
  const int2* const columns = target.columns + (lane & 3);
  int4* const even = (int4*)(target.to + (target.row + (lane >> 2 & 6)) * PITCH + column * 8) + (lane & 3) + (odd ? 4 : 0);
#pragma unroll
  for (u32 j = 0; j < N / 8; j += 2)
#pragma unroll
    for (u32 lower = 0; lower < 2; lower++) {
      const u32 first = FIRST + 8 * j, pair = first / 4 + lower;
      const int4 x = sum_of(of, pair, columns[first / 2]), y = sum_of(of, pair + 2, columns[first / 2 + 4]);
      const int4 other = exchange(odd ? x : y, 4);
      put(even + j * 4 + lower * (PITCH / 2), odd ? other : x, target.add);
      put(even + PITCH / 16 + j * 4 + lower * (PITCH / 2), odd ? y : other, target.add);
    }
}
template <u32 FIRST, u32 N> INLINE void store(const Products& of, const Target& target, u32 column, u32 lane) {
  if constexpr (LONE) store_staged<FIRST, N>(of, target, column, lane);
  else store_direct<FIRST, N>(of, target, column, lane);
}

// Columns FIRST .. FIRST + N become rows `row` .. of the tile, and this warp's rows its columns: the conjugates.
template <u32 FIRST, u32 N> INLINE void store_turned(const Products& of, const Target& target, u32 row, u32 lane) {
  const int2* const columns = target.columns + (lane & 3);
  unsigned char* const to = target.to + (target.row + (lane >> 2)) * 8;
#pragma unroll
  for (u32 j = 0; j < N / 8; j++) {
    const u32 first = FIRST + 8 * j, mine = row + 8 * j + 2 * (lane & 3);
#pragma unroll
    for (u32 lower = 0; lower < 2; lower++) {
      const int4 sums = sum_of(of, first / 4 + lower, columns[first / 2]);
      int2* const at = (int2*)(to + mine * PITCH + lower * 64);
      int2* const next = (int2*)((unsigned char*)at + PITCH);
      int2 x = make_int2(sums.x, -sums.y), y = make_int2(sums.z, -sums.w);
      if (target.add) {
        if (mine < target.rows) x.x += at->x, x.y += at->y;
        if (mine + 1 < target.rows) y.x += next->x, y.y += next->y;
      }
      if (mine < target.rows) *at = x;
      if (mine + 1 < target.rows) *next = y;
    }
  }
}

// How many columns a warpgroup multiplies: 128, 64, and where RAGGED those of the last block.
constexpr u32 LOWER = WIDTH < 64 ? WIDTH : 64;   // those that the first 64 rows of the last tile need
enum Kind : u32 { ALL, HALF, NARROW, NONE, JOINED };   // JOINED: ALL, and EXTRA ones; HALF has these too
// What a warpgroup multiplies: its rows, which may be in the same slot as the columns, with columns from `column` on, the
// first of the EXTRA ones being 0.
struct Task { u32 kind; bool same; u32 column; };

INLINE Task task_of(const Work& work, const Place& job, u32 team) {
  const bool same = job.row == job.column;
  Task task = {ALL, same, same ? 0 : EXTRA};
  if (SMALL) task = {HALF, true, team * 64};
  else if (BESIDE && same) task.kind = team ? JOINED : HALF;
  else if (RAGGED && job.row == work.blocks - 1)
    task.kind = same && team && WIDTH <= 64 ? NONE : same && team == 0 && WIDTH > 64 ? HALF : NARROW;
  else if (same && team == 0) task.kind = HALF;
  task.kind = __shfl_sync(~0u, task.kind, 0);
  return task;
}

// `issue` is called with the number of columns as a constant.
template <class Issue> INLINE void with_columns(const Task& task, Issue issue) {
  // Of 4 bits the registers do not suffice for three kinds.
  constexpr bool WHOLE = !SMALL && !(LONE && (RAGGED || BESIDE)), FEW = RAGGED && SHIFT > 0;
  if (WHOLE && task.kind == ALL) issue(Constant<128>{});
  else if (BESIDE && task.kind == JOINED) issue(Constant<PRODUCTS>{});
  else if (!FEW && task.kind == HALF) issue(Constant<64 + EXTRA>{});
  else if (RAGGED && !FEW && task.kind == NARROW) issue(Constant<WIDTH>{});
  else if (FEW && task.kind != NONE) issue(Constant<(WIDTH > 64 ? WIDTH : 64)>{});
}

// Sums of a job where the last block has none. On the diagonal the first COUNT columns are its, and
// go to the last row of tiles.
template <u32 COUNT> INLINE void store_beside(const Products& of, const Work& work, const Place& job, Target target, u32 lane) {
  if (job.row != job.column) {
    target.columns += COUNT / 2;
    return store<0, 128>(of, target, 0, lane);
  }
  const u32 rows = work.inputs - (work.blocks - 1) * EDGE, tile = (job.channel + 1) * work.tiles - work.blocks + job.column;
  const Target below = {(unsigned char*)work.sums + (u64)tile * TILE, target.row, rows, target.columns, 0, false, target.add};
  store_turned<0, COUNT>(of, below, 0, lane);
  if (target.row < 64) store<COUNT, 64>(of, target, 0, lane);
  else store<COUNT, 128>(of, target, 0, lane);
}

// Sums of a job from one warp, whose rows begin at `target.row` of the job's 128.
INLINE void store_job(const Products& of, const Work& work, const Place& job, Target target, u32 lane) {
  const u32 team = target.row / 64, channel = target.row / EDGE;
  const bool last = RAGGED && job.row == work.blocks - 1;
  if constexpr (SMALL) {
    // Channels of the job stand below each other, and so do their tiles.
    target.to += channel * TILE, target.row -= channel * EDGE, target.columns += team * 32;
    if (job.channel + channel >= work.channels) target.rows = 0;
    if (EDGE == 64 || channel % 2 == 0) store<0, EDGE>(of, target, 0, lane);
    else store<EDGE == 64 ? 0 : 32, 32>(of, target, 0, lane);
  } else if constexpr (BESIDE) {
    store_beside<EXTRA>(of, work, job, target, lane);
  } else if (last && job.row != job.column) {
    store_turned<0, WIDTH>(of, target, 0, lane);
  } else if (last && team == 0) {
    store<0, LOWER>(of, target, 0, lane);
  } else if (last) {
    if constexpr (WIDTH > 64) store<0, WIDTH>(of, target, 0, lane);
  } else if (job.row == job.column && team == 0) {
    store<0, 64>(of, target, 0, lane);
  } else {
    store<0, 128>(of, target, 0, lane);
  }
}

// Where a kernel keeps what warps hand over, in shared memory.
struct Layout { u32 staging, columns, full, free, tickets; };   // the columns' sums: two places of PRODUCTS i32, barriers of each

// `sum` and the bytes of 16 that `bytes` asks for: 1 in the place of each.
INLINE i32 sum_bytes(const uint4& word, i32 bytes, i32 sum) {
  sum = __dp4a((i32)word.x, bytes, sum), sum = __dp4a((i32)word.y, bytes, sum);
  return __dp4a((i32)word.w, bytes, __dp4a((i32)word.z, bytes, sum));
}
// A column of the EXTRA ones whose sum a thread makes a part of, and which part: every PARTS-th of its chunks.
struct Beside {
  static constexpr u32 PARTS = BESIDE ? 64 / WIDTH : 1;
  u32 column, part;
  INLINE explicit Beside(u32 thread) : column(thread / 32 * (WIDTH / 2) + thread % (WIDTH / 2)), part(thread % 32 / (WIDTH / 2)) {}
};
// The sums of columns `thread` and `thread` + 64, and the parts of those of EXTRA ones, go to the warps that multiply, once
// those have read an earlier job's.
INLINE void hand_over(unsigned char* shared, const Layout& layout, Ring<2>& to, u32 thread, const i32 (&sums)[2], i32 part = 0) {
  const u32 base = shared_address(shared);
  barrier_wait(base + layout.free + to.slot * 8, to.parity ^ 1);
  i32* const kept = (i32*)(shared + layout.columns) + to.slot * PRODUCTS + EXTRA + thread;
  kept[0] = sums[0], kept[64] = sums[1];
  if constexpr (BESIDE) {
#pragma unroll
    for (u32 lanes = WIDTH / 2; lanes < 32; lanes *= 2) part += __shfl_xor_sync(~0u, part, lanes);
    const Beside beside(thread);
    if (beside.part == 0) ((i32*)(shared + layout.columns))[to.slot * PRODUCTS + beside.column] = part;
  }
  barrier_arrive(base + layout.full + to.slot * 8);
  to.advance();
}

// Where a lane of a warp that multiplies is.
struct Lane {
  u32 base, lane;
  u32 row;     // offset in a slot of the row that this lane gives to load_matrix_x4
  u32 swap;    // how chunks of that row are swapped
  u32 half;    // which of two chunks
};

// A warp that multiplies and stores 16 rows from `row` of the 128 on: `multiply(products, task)` for each job.
template <class Multiply>
INLINE void correlate(const Work& work, unsigned char* shared, const Layout& layout, u32 row, Multiply multiply) {
  const u32 lane = threadIdx.x & 31, base = shared_address(shared);
  unsigned char* const staging = shared + layout.staging + row / 16 * STAGING;
  Ring<2> sums = {0, 0};
  for_each_job(work, shared, layout.tickets, [&](const Told& told) {
    Products of;
    of.clear();
    multiply(of, task_of(work, told(), row / 64));
    const Place job = told();
    barrier_wait(base + layout.full + sums.slot * 8, sums.parity);
    const int2* const columns = (const int2*)(shared + layout.columns) + sums.slot * (PRODUCTS / 2);
    unsigned char* const to = (unsigned char*)work.sums + (u64)job.tile * TILE;
    store_job(of, work, job, {to, row, work.inputs - job.row * EDGE, columns, staging, job.row == job.column, work.add != 0}, lane);
    warp_arrive(base + layout.free + sums.slot * 8);
    sums.advance();
  });
  bulk_wait_read<0>();
}
