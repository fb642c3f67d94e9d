// Code shared by the Hopper correlators: tile scheduling, rings of slots in shared memory, and the stores of sums.
//
// A job is one output tile (of SMALL shapes, the tiles of CHANNELS channels). The edge block is the last, partial
// block of inputs; the edge columns are its columns where EDGE_COLUMNS lets other tiles multiply them.
#pragma once
#include "device.cuh"

constexpr u32 THREADS = 384;
// Register budget of the three warpgroups together; `setmaxnreg.inc` beyond it deadlocks.
constexpr u32 REGISTERS = 3 * (65536 / THREADS / 8 * 8);
constexpr u32 SLOT = 128 * 128;   // 128 inputs x 128 bytes
constexpr u32 CHANNELS = 128 / EDGE;   // channels per job: more than one if all inputs fit one small tile
// EDGE_COLUMNS: registers allow 16 edge columns at most, and for 4 bits only next to a single whole block.
constexpr bool SMALL = EDGE < 128, EDGE_COLUMNS = WIDTH == 16 && (SHIFT == 0 || SINGLE_TILE);
constexpr bool RAGGED = !SMALL && WIDTH < 128 && !EDGE_COLUMNS;
static_assert(!SMALL || WIDTH == 128, "small tiles are whole");
constexpr u32 EXTRA = EDGE_COLUMNS ? WIDTH : 0;   // edge columns in front of the columns of a diagonal tile
constexpr u32 PRODUCTS = 128 + EXTRA;       // maximum columns of a warpgroup; also the number of column sums
constexpr u32 PITCH = EDGE * 8, TILE = EDGE * PITCH;   // bytes of a row of sums, and of a tile
constexpr u32 STAGING = 2 * 4096;   // bytes per consumer warp: two buffers of 8 rows x 64 sums

struct Work {
  u64 sums;   // axes channel, tile, row, column; (re, im) i32
  u32 channels, inputs, blocks, tiles, jobs;
  u32 halves;   // number of 64-byte segments along time
  u32 add;      // 1: add to the stored sums
  u32* claimed;   // dynamic scheduler: jobs claimed beyond each block's first, and finished blocks; 0 between launches
};
// Output tile of a job, or the small tiles of CHANNELS channels. `tile` is its index among the tiles of all channels.
struct TileIndex { u32 tile, channel, row, column; };

INLINE TileIndex tile_index(const Work& work, u32 job) {
  if constexpr (SINGLE_TILE) {
    return {job * (EDGE_COLUMNS ? work.tiles : CHANNELS), job * CHANNELS, 0, 0};
  } else {
    // With EDGE_COLUMNS the edge block has no jobs; its tiles are the last of each channel.
    const u32 each = EDGE_COLUMNS ? work.tiles - work.blocks : work.tiles;
    const u32 channel = job / each, tile = job - channel * each;
    u32 row = (u32)((sqrtf(8.f * (float)tile + 1.f) - 1.f) * .5f);
    while (row * (row + 1) / 2 > tile) row--;
    while ((row + 1) * (row + 2) / 2 <= tile) row++;
    return {EDGE_COLUMNS ? channel * work.tiles + tile : job, channel, row, tile - row * (row + 1) / 2};
  }
}
template <u32 VALUE> struct Constant { static constexpr u32 value = VALUE; };

// Slot in a ring of COUNT slots, and the barrier parity of the current pass over the ring.
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

// Barrier arrivals per warp that has accessed shared memory. One lane arrives for its warp after __syncwarp. With the
// dynamic scheduler, or where some threads unpack data that others read, every lane arrives: otherwise racecheck
// reports hazards.
constexpr u32 ARRIVALS = DYNAMIC || (EDGE_COLUMNS && SHIFT > 0) ? 32 : 1;
INLINE void warp_arrive(u32 barrier) {
  if constexpr (ARRIVALS == 1) __syncwarp();
  if (ARRIVALS == 32 || (threadIdx.x & 31) == 0) barrier_arrive(barrier);
}

// Jobs the producer may publish ahead of the other warps, and the bytes of that queue.
constexpr u32 QUEUE_DEPTH = 4, QUEUE_BYTES = QUEUE_DEPTH * 32;
constexpr u32 NONE_LEFT = ~0u;
// The queue at `at` holds QUEUE_DEPTH jobs, then for each a barrier "published" and a barrier "consumed".
INLINE u32 published(u32 at, u32 slot) { return at + QUEUE_DEPTH * 16 + slot * 8; }
INLINE u32 consumed(u32 at, u32 slot) { return at + QUEUE_DEPTH * 24 + slot * 8; }
INLINE void init_queue(u32 at, u32 warps) {
  if constexpr (DYNAMIC)
    for (u32 i = 0; i < QUEUE_DEPTH; i++) barrier_init(published(at, i), 1), barrier_init(consumed(at, i), warps * ARRIVALS);
}

// Current job of a warp. A dynamically scheduled job is reread from shared memory on each use, to save registers.
struct PublishedJob {
  const uint4* words;
  TileIndex own;
  INLINE TileIndex operator()() const {
    if constexpr (!DYNAMIC) return own;
    const uint4 at = *words;
    // The shuffle tells the compiler that the values are uniform over the warp.
    return {__shfl_sync(~0u, at.x, 0), __shfl_sync(~0u, at.y, 0), __shfl_sync(~0u, at.z, 0), __shfl_sync(~0u, at.w, 0)};
  }
};

// Static scheduler: one job per block and pass over the grid. The assignment rotates from pass to pass, so that each
// block gets both cheap (diagonal) and full tiles.
template <class Do> INLINE void of_rounds(const Work& work, Do what) {
  for (u32 first = 0, turn = blockIdx.x; first < work.jobs; first += gridDim.x) {
    if (first + turn < work.jobs) what(tile_index(work, first + turn));
    turn = turn + 1 == gridDim.x ? 0 : turn + 1;
  }
}

// Producer side of the scheduler. DYNAMIC: a block starts with job `blockIdx.x` and claims further ones from a global
// counter, because blocks differ in speed. The producer claims each job ahead of its use and publishes it to the
// other warps.
template <class Do> INLINE void claim_jobs(const Work& work, unsigned char* shared, u32 queue, Do what) {
  if constexpr (!DYNAMIC) return of_rounds(work, what);
  const u32 at = shared_address(shared) + queue;
  Ring<QUEUE_DEPTH> ring = {0, 0};
  for (u32 job = blockIdx.x;;) {
    const bool is_any = job < work.jobs;
    const u32 next = is_any ? gridDim.x + atomicAdd(work.claimed, 1) : 0;
    const TileIndex own = is_any ? tile_index(work, job) : TileIndex{NONE_LEFT, 0, 0, 0};
    barrier_wait(consumed(at, ring.slot), ring.parity ^ 1);
    *(uint4*)(shared + queue + ring.slot * 16) = make_uint4(own.tile, own.channel, own.row, own.column);
    barrier_arrive(published(at, ring.slot));
    if (!is_any) break;
    what(own);
    ring.advance();
    job = next;
  }
  // The last block to finish resets the counter: by then every block has made its last claim.
  if (atomicInc(work.claimed + 1, gridDim.x - 1) == gridDim.x - 1) atomicExch(work.claimed, 0);
}
// Consumer side of the scheduler.
template <class Do> INLINE void for_each_job(const Work& work, unsigned char* shared, u32 queue, Do what) {
  if constexpr (!DYNAMIC) return of_rounds(work, [&](const TileIndex& job) { what(PublishedJob{nullptr, job}); });
  const u32 at = shared_address(shared) + queue;
  for (u32 turn = 0;; turn++) {
    const u32 slot = turn % QUEUE_DEPTH;
    barrier_wait(published(at, slot), turn / QUEUE_DEPTH & 1);
    const PublishedJob job = {(const uint4*)(shared + queue) + slot, {}};
    if (job().tile == NONE_LEFT) break;
    what(job);
    warp_arrive(consumed(at, slot));
  }
}

// Returns register q of a' = (im, ~re), the left operand of the imaginary parts, for `a` = (re, im). 8 bit: bytes
// alternate re and im. 4 bit: registers 0 and 1 hold real parts, 2 and 3 imaginary parts.
INLINE u32 turned(const u32 (&a)[4], u32 q) {
  if constexpr (SHIFT == 0) return __byte_perm(a[q], 0, 0x2301) ^ 0xff00ff00u;
  else return q < 2 ? a[q + 2] : ~a[q - 2];
}

// Accumulators of 16 x PRODUCTS products of a warp. Elements 4 j .. 4 j + 3 of a lane are row lane / 4, columns
// 8 j + 2 (lane % 4) and the next, then the same columns eight rows below.
struct Products {
  i32 re[PRODUCTS / 2], im[PRODUCTS / 2];
  INLINE void clear() {
#pragma unroll
    for (u32 i = 0; i < PRODUCTS / 2; i++) re[i] = im[i] = 0;
  }
};
// Returns the sums of two adjacent columns. `pair` is 2 j, or 2 j + 1 for the row eight below; `column` holds the
// columns' sums of imaginary parts, which correct for ~re = -re - 1.
INLINE int4 sum_of(const Products& of, u32 pair, int2 column) {
  return make_int4(of.re[2 * pair] >> SHIFT, (of.im[2 * pair] + column.x) >> SHIFT, of.re[2 * pair + 1] >> SHIFT,
                   (of.im[2 * pair + 1] + column.y) >> SHIFT);
}

// Destination of a warp's sums.
struct Target {
  unsigned char* to;         // first byte of the tile
  u32 row, rows;             // first row of this warp; number of rows of the tile that hold inputs
  const int2* columns;       // column sums, in shared memory
  unsigned char* staging;    // staging buffers of this warp, in shared memory
  bool diagonal, add;        // diagonal: skip columns right of the diagonal
};

// Stores columns FIRST .. FIRST + N of the products to columns `column` .. of the target, through shared memory by
// bulk copies in the background.
template <u32 FIRST, u32 N> INLINE void store_staged(const Products& of, const Target& target, u32 column, u32 lane) {
  const u32 odd = lane >> 2 & 1;
  const int2* const columns = target.columns + (lane & 3);
  // Odd rows swap adjacent 64-byte chunks, so that eight lanes cover all shared-memory banks.
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
      // Rounded up to whole pairs of columns.
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
// Like `store_staged`, directly from registers. Lanes of adjacent rows exchange halves, so that each instruction
// writes whole 128-byte lines.
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
  if constexpr (SINGLE_TILE) store_staged<FIRST, N>(of, target, column, lane);
  else store_direct<FIRST, N>(of, target, column, lane);
}

// Stores columns FIRST .. FIRST + N transposed and conjugated: they become rows `row` .. of the tile, and this warp's
// rows its columns.
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

// Column counts of a warpgroup: ALL 128, HALF 64, NARROW WIDTH (edge block, if RAGGED), JOINED 128 + EXTRA.
constexpr u32 LOWER = WIDTH < 64 ? WIDTH : 64;   // columns that the first 64 rows of the last diagonal tile need
enum Kind : u32 { ALL, HALF, NARROW, NONE, JOINED };   // with EDGE_COLUMNS, HALF includes EXTRA too
// Work of a warpgroup in a job. `same`: its rows are read from the slot of the columns. `column`: first column to
// multiply, where column 0 is the first edge column.
struct Task { u32 kind; bool same; u32 column; };

INLINE Task task_of(const Work& work, const TileIndex& job, u32 team) {
  const bool same = job.row == job.column;
  Task task = {ALL, same, same ? 0 : EXTRA};
  if (SMALL) task = {HALF, true, team * 64};
  else if (EDGE_COLUMNS && same) task.kind = team ? JOINED : HALF;
  else if (RAGGED && job.row == work.blocks - 1)
    task.kind = same && team && WIDTH <= 64 ? NONE : same && team == 0 && WIDTH > 64 ? HALF : NARROW;
  else if (same && team == 0) task.kind = HALF;
  task.kind = __shfl_sync(~0u, task.kind, 0);
  return task;
}

// Calls `issue` with the number of columns as a compile-time constant.
template <class Issue> INLINE void with_columns(const Task& task, Issue issue) {
  // 4 bit: the registers do not suffice for three variants.
  constexpr bool WHOLE = !SMALL && !(SINGLE_TILE && (RAGGED || EDGE_COLUMNS)), FEW_VARIANTS = RAGGED && SHIFT > 0;
  if (WHOLE && task.kind == ALL) issue(Constant<128>{});
  else if (EDGE_COLUMNS && task.kind == JOINED) issue(Constant<PRODUCTS>{});
  else if (!FEW_VARIANTS && task.kind == HALF) issue(Constant<64 + EXTRA>{});
  else if (RAGGED && !FEW_VARIANTS && task.kind == NARROW) issue(Constant<WIDTH>{});
  else if (FEW_VARIANTS && task.kind != NONE) issue(Constant<(WIDTH > 64 ? WIDTH : 64)>{});
}

// Stores the sums of a job with EDGE_COLUMNS. On a diagonal tile the first COUNT columns are edge columns; they go to the
// last row of tiles.
template <u32 COUNT>
INLINE void store_with_edge_columns(const Products& of, const Work& work, const TileIndex& job, Target target, u32 lane) {
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

// Stores the sums of one warp, whose rows begin at `target.row` of the 128 rows of the job.
INLINE void store_job(const Products& of, const Work& work, const TileIndex& job, Target target, u32 lane) {
  const u32 team = target.row / 64, channel = target.row / EDGE;
  const bool last = RAGGED && job.row == work.blocks - 1;
  if constexpr (SMALL) {
    // The channels of the job are stacked along the rows, and their tiles are consecutive in memory.
    target.to += channel * TILE, target.row -= channel * EDGE, target.columns += team * 32;
    if (job.channel + channel >= work.channels) target.rows = 0;
    if (EDGE == 64 || channel % 2 == 0) store<0, EDGE>(of, target, 0, lane);
    else store<EDGE == 64 ? 0 : 32, 32>(of, target, 0, lane);
  } else if constexpr (EDGE_COLUMNS) {
    store_with_edge_columns<EXTRA>(of, work, job, target, lane);
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

// Offsets in shared memory of the data that warps exchange.
struct Layout { u32 staging, columns, full, free, queue; };   // columns: two buffers of PRODUCTS i32

// Adds to `sum` the bytes of `word` that `bytes` selects with a 1 in each selected byte of a 32-bit word.
INLINE i32 sum_bytes(const uint4& word, i32 bytes, i32 sum) {
  sum = __dp4a((i32)word.x, bytes, sum), sum = __dp4a((i32)word.y, bytes, sum);
  return __dp4a((i32)word.w, bytes, __dp4a((i32)word.z, bytes, sum));
}
// Edge column whose sum this thread computes in part: `part` takes every PARTS-th chunk.
struct EdgeColumn {
  static constexpr u32 PARTS = EDGE_COLUMNS ? 64 / WIDTH : 1;
  u32 column, part;
  INLINE explicit EdgeColumn(u32 thread) : column(thread / 32 * (WIDTH / 2) + thread % (WIDTH / 2)), part(thread % 32 / (WIDTH / 2)) {}
};
// Passes the sums of columns `thread` and `thread` + 64, and the partial sum of an edge column, to the consumer
// warps, after they have released the buffer.
INLINE void hand_over(unsigned char* shared, const Layout& layout, Ring<2>& to, u32 thread, const i32 (&sums)[2], i32 part = 0) {
  const u32 base = shared_address(shared);
  barrier_wait(base + layout.free + to.slot * 8, to.parity ^ 1);
  i32* const kept = (i32*)(shared + layout.columns) + to.slot * PRODUCTS + EXTRA + thread;
  kept[0] = sums[0], kept[64] = sums[1];
  if constexpr (EDGE_COLUMNS) {
#pragma unroll
    for (u32 lanes = WIDTH / 2; lanes < 32; lanes *= 2) part += __shfl_xor_sync(~0u, part, lanes);
    const EdgeColumn edge_column(thread);
    if (edge_column.part == 0) ((i32*)(shared + layout.columns))[to.slot * PRODUCTS + edge_column.column] = part;
  }
  barrier_arrive(base + layout.full + to.slot * 8);
  to.advance();
}

// Position of a lane of a consumer warp.
struct Lane {
  u32 base, lane;
  u32 row;     // byte offset in a slot of the row whose address this lane passes to load_matrix_x4
  u32 swap;    // swizzle of that row: XOR on the chunk index
  u32 half;    // index of one of two adjacent chunks
};

// Main loop of a consumer warp for 16 of the 128 rows, from `row` on: calls `multiply(products, task)` and stores the
// sums.
template <class Multiply>
INLINE void correlate(const Work& work, unsigned char* shared, const Layout& layout, u32 row, Multiply multiply) {
  const u32 lane = threadIdx.x & 31, base = shared_address(shared);
  unsigned char* const staging = shared + layout.staging + row / 16 * STAGING;
  Ring<2> sums = {0, 0};
  for_each_job(work, shared, layout.queue, [&](const PublishedJob& published) {
    Products of;
    of.clear();
    multiply(of, task_of(work, published(), row / 64));
    const TileIndex job = published();
    barrier_wait(base + layout.full + sums.slot * 8, sums.parity);
    const int2* const columns = (const int2*)(shared + layout.columns) + sums.slot * (PRODUCTS / 2);
    unsigned char* const to = (unsigned char*)work.sums + (u64)job.tile * TILE;
    store_job(of, work, job, {to, row, work.inputs - job.row * EDGE, columns, staging, job.row == job.column, work.add != 0}, lane);
    warp_arrive(base + layout.free + sums.slot * 8);
    sums.advance();
  });
  bulk_wait_read<0>();
}

// Unpacks 16 samples of 4 bits to 16 bytes of real parts and 16 bytes of imaginary parts, from shared memory to shared
// memory. Bytes hold the parts scaled by 16. Returns `sum` plus the imaginary parts.
INLINE i32 unpack_samples(const uint4& w, unsigned char* real, unsigned char* imaginary, i32 sum) {
  const u32 m = 0xf0f0f0f0u;
  const uint4 low = make_uint4(w.x << 4 & m, w.y << 4 & m, w.z << 4 & m, w.w << 4 & m);
  *(uint4*)real = make_uint4(w.x & m, w.y & m, w.z & m, w.w & m);
  *(uint4*)imaginary = low;
  return sum_bytes(low, 0x01010101, sum);
}
