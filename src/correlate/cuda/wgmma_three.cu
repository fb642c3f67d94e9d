// Exact correlations of complex samples of 4 bits on Hopper by three real products a complex one; see wgmma_4bit.cu.
//
// P1 = sum ar br, P2 = sum ai bi, P3 = sum (ar + ai) (br - bi): Re = P1 + P2, Im = P3 - P1 + P2. Bytes hold 16 times the parts,
// as in wgmma_4bit.cu, and 8 times their sums and differences, which are -16 to 14 and -15 to 15. So P1 and P2 come out 256
// times, of at most 2^14 a sample, P3 comes out 64 times, of at most 128 x 120, and Re and Im 256 times, of at most 2^15: 65 472
// samples fit 32 bits. What 4 P3 has too much on the way is gone with P1 and P2: nothing is lost where bits wrap around.
//
// A block has three warpgroups: the first makes planes of bytes from columns, br and bi side by side and br - bi by itself,
// and one of its threads brings what comes later; the others multiply 64 rows x 128 columns each, in 192 registers of sums.
// Rows ar, ai and ar + ai are made in registers.
//
// EDGE, WIDTH, LONE: as in wgmma.cu.
#define SHIFT 8
#include "wgmma.cuh"

constexpr u32 RAW = 128 * 64;   // 128 inputs x 64 samples
// Places for stages as they come, of rows and columns or of what is both, and for planes. A slot of differences has two stages.
constexpr u32 STAGE = LONE ? RAW : 2 * RAW, COLUMNS = STAGE - RAW, STAGES = 8, WIDES = 4;
// Stages are brought so long before they are widened, and no longer: who brings would wait for those who multiply.
constexpr u32 AHEAD = STAGES - WIDES;
constexpr u32 DIFFERENCES = WIDES * SLOT, STAGES_AT = DIFFERENCES + WIDES * RAW, STAGING_AT = STAGES_AT + STAGES * STAGE;
constexpr u32 FULL = STAGING_AT + (LONE ? 8 * STAGING : 0), FREE = FULL + STAGES * 8, WIDES_FULL = FREE + STAGES * 8;
constexpr u32 WIDES_FREE = WIDES_FULL + WIDES * 8;
static_assert(WIDES_FREE + WIDES * 8 <= 232448, "a block's shared memory");

// Stage `number` of all of this block's: where its barriers stand, and the parity of their round.
INLINE u32 stage_barrier(u32 number) { return number % STAGES * 8; }
INLINE u32 wide_barrier(u32 number) { return number % WIDES * 8; }
INLINE u32 stage_round(u32 number) { return number / STAGES & 1; }
INLINE u32 wide_round(u32 number) { return number / WIDES & 1; }

// Four samples: 16 times their parts, and 8 times the parts' sum and difference, of parts that are made positive, so that
// nothing is carried from byte to byte.
INLINE u32 real_of(u32 word) { return word & 0xf0f0f0f0u; }
INLINE u32 imaginary_of(u32 word) { return word << 4 & 0xf0f0f0f0u; }
INLINE u32 sum_of(u32 word) {
  return (mask_flip(word >> 1, 0x78787878u, 0x40404040u) + mask_flip(word << 3, 0x78787878u, 0x40404040u)) ^ 0x80808080u;
}
INLINE u32 difference_of(u32 word) {
  return (mask_flip(word >> 1, 0x78787878u, 0xc0c0c0c0u) - mask_flip(word << 3, 0x78787878u, 0x40404040u)) ^ 0x80808080u;
}

// What the tiles hold is made of three sums.
struct Triples {
  i32 real[64], imaginary[64], mixed[64];
  INLINE void clear() {
#pragma unroll
    for (u32 i = 0; i < 64; i++) real[i] = imaginary[i] = mixed[i] = 0;
  }
};
INLINE int2 sum_of(const Triples& of, u32 i) {
  const u32 real = (u32)of.real[i], imaginary = (u32)of.imaginary[i];
  return make_int2((i32)(real + imaginary) >> SHIFT, (i32)(4 * (u32)of.mixed[i] - real + imaginary) >> SHIFT);
}
INLINE int4 sum_of(const Triples& of, u32 pair, const int2*) {
  const int2 x = sum_of(of, 2 * pair), y = sum_of(of, 2 * pair + 1);
  return make_int4(x.x, x.y, y.x, y.y);
}

// Brings stage after stage of this block's jobs. Rows and columns are those of the products, which are turned in ragged tiles.
struct Courier {
  u32 round, stage, rows, columns, channel;   // the blocks of inputs
  // As in for_each_job.
  INLINE void find(const Work& work) {
    const u32 index = round * gridDim.x + (blockIdx.x + round) % gridDim.x;
    const Place job = place(work, index);
    const bool narrow = RAGGED && job.row == work.blocks - 1;
    rows = narrow ? job.column : job.row, columns = narrow ? job.row : job.column, channel = job.channel;
  }
  INLINE void bring(const Work& work, const TensorMap& map, const TensorMap& last, u32 base, u32 number) {
    const bool same = LONE || rows == columns, narrow = RAGGED && columns == work.blocks - 1;
    const u32 full = base + FULL + stage_barrier(number), to = base + STAGES_AT + number % STAGES * STAGE;
    barrier_wait(base + FREE + stage_barrier(number), stage_round(number) ^ 1);
    barrier_expect(full, (narrow ? WIDTH * 64 : RAW) + (same ? 0 : RAW));
    if (!same) tensor_load_3d(to, &map, (i32)(stage * 64), (i32)(rows * 128), (i32)channel, full);
    tensor_load_3d(to + COLUMNS, narrow ? &last : &map, (i32)(stage * 64), (i32)(columns * 128), (i32)channel, full);
    if (++stage < parts(work.halves, 2u)) return;
    stage = 0, round++;
    find(work);
  }
};

// Where a thread that widens begins: it takes the same 16 samples of four columns, each eight after the one before. Of eight
// threads, four take a column and four that which differs in bits 0 and 2, so that they fall on all banks both ways.
struct Worker { u32 raw, wide; };
INLINE Worker worker_of(u32 thread) {
  const u32 chunk = thread & 3, column = thread / 32 * 32 + ((thread >> 3 & 3) ^ (thread >> 2 & 1) * 5);
  return {column * 64 + (chunk ^ (column >> 1 & 3)) * 16, column * 128 + (chunk ^ (column & 7)) * 16};
}
// Differences of two stages share rows of 128 bytes: those of an `odd` one come second.
INLINE void widen(const unsigned char* raw, unsigned char* wide, unsigned char* differences, const Worker& worker, u32 odd) {
  uint4 words[4];
#pragma unroll
  for (u32 i = 0; i < 4; i++) words[i] = *(const uint4*)(raw + worker.raw + i * 8 * 64);
  unsigned char* const real = wide + worker.wide;
  unsigned char* const imaginary = wide + (worker.wide ^ 64);
  unsigned char* const difference = differences + (worker.wide ^ odd * 64);
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    const uint4 w = words[i];
    *(uint4*)(real + i * 8 * 128) = make_uint4(real_of(w.x), real_of(w.y), real_of(w.z), real_of(w.w));
    *(uint4*)(imaginary + i * 8 * 128) = make_uint4(imaginary_of(w.x), imaginary_of(w.y), imaginary_of(w.z), imaginary_of(w.w));
    *(uint4*)(difference + i * 8 * 128) =
        make_uint4(difference_of(w.x), difference_of(w.y), difference_of(w.z), difference_of(w.w));
  }
}
// Stage after stage becomes planes, and one thread brings those that come later.
INLINE void prepare(const Work& work, const TensorMap& map, const TensorMap& last, unsigned char* shared, u32 base, u32 thread) {
  const u32 rounds = work.jobs / gridDim.x, more = (blockIdx.x + rounds) % gridDim.x < work.jobs % gridDim.x;
  const u32 count = (rounds + more) * parts(work.halves, 2u);
  const Worker worker = worker_of(thread);
  Courier courier = {};
  if (thread == 0) {
    courier.find(work);
#pragma unroll 1
    for (u32 i = 0; i < smaller(AHEAD, count); i++) courier.bring(work, map, last, base, i);
  }
#pragma unroll 1
  for (u32 number = 0; number < count; number++) {
    if (thread == 0 && number + AHEAD < count) courier.bring(work, map, last, base, number + AHEAD);
    __syncwarp();
    const u32 slot = number % WIDES;
    barrier_wait(base + FULL + stage_barrier(number), stage_round(number));
    barrier_wait(base + WIDES_FREE + wide_barrier(number), wide_round(number) ^ 1);
    unsigned char* const wide = shared + slot * SLOT;
    unsigned char* const differences = shared + DIFFERENCES + slot / 2 * SLOT;
    widen(shared + STAGES_AT + number % STAGES * STAGE + COLUMNS, wide, differences, worker, slot % 2);
    fence_async_shared();
    __syncwarp();
    if ((thread & 31) == 0)
      barrier_arrive(base + FREE + stage_barrier(number)), barrier_arrive(base + WIDES_FULL + wide_barrier(number));
  }
}

// Products of a job's rows in this warpgroup with its columns, all stages from `number` on, 32 samples a step. Rows are made
// for one product while the one before it is on its way.
INLINE void multiply(Triples& of, const Lane& lane, u32& number, u32 halves, const Task& task) {
  u32 raw[4], a[3][4] = {};
  auto full = [&]() { barrier_wait(lane.base + FULL + stage_barrier(number), stage_round(number)); };
  auto load = [&](u32 half) {
    const u32 rows = lane.base + STAGES_AT + (task.same ? COLUMNS : 0) + number % STAGES * STAGE;
    load_matrix_x4(raw, rows + lane.row + ((2 * half + lane.half) ^ lane.swap) * 16);
  };
  auto release = [&](u32 barrier) { if (lane.lane == 0) barrier_arrive(lane.base + barrier); };
  // `kind` is the product: each has registers of its own.
  auto make = [&](auto kind_, auto rows) {
#pragma unroll
    for (u32 q = 0; q < 4; q++) {
      u32& mine = a[decltype(kind_)::value][q];
      mine = rows(raw[q]);
      // Made before the product begins.
      keep(mine);
    }
  };
  auto issue = [&](auto kind_, i32(&sums)[64], u64 columns) {
    constexpr u32 kind = decltype(kind_)::value;
    auto product = [&](auto n_) {
      wgmma_fence();
      wgmma_s8<decltype(n_)::value>(sums, a[kind], columns, 1);
      wgmma_commit();
    };
    // Always one, wanted or not: a way past all of them would cost registers.
    if (!SMALL && !(LONE && RAGGED) && task.kind == ALL) product(Constant<128>{});
    else if (RAGGED && task.kind != HALF) product(Constant<WIDTH>{});
    else product(Constant<64>{});
    wgmma_wait<1>();
    // The product before this one has read its registers, which may hold something else from here on.
#pragma unroll
    for (u32 q = 0; q < 4; q++) keep(a[(kind + 2) % 3][q]);
  };
  u32 left = halves;
  full();
  load(0);
  // `set` is the half of a stage.
  auto step = [&](auto set_) {
    constexpr u32 set = decltype(set_)::value;
    const u32 slot = number % WIDES;
    if (set == 0) barrier_wait(lane.base + WIDES_FULL + wide_barrier(number), wide_round(number));
    const u64 columns = wgmma_swizzled(lane.base + slot * SLOT) + task.column * 8 + set * 2;
    const u64 differences = wgmma_swizzled(lane.base + DIFFERENCES + slot / 2 * SLOT) + task.column * 8 + slot % 2 * 4 + set * 2;
    make(Constant<0>{}, [](u32 word) { return real_of(word); });
    issue(Constant<0>{}, of.real, columns);
    make(Constant<1>{}, [](u32 word) { return imaginary_of(word); });
    issue(Constant<1>{}, of.imaginary, columns + 4);
    make(Constant<2>{}, [](u32 word) { return sum_of(word); });
    const bool more = --left > 0;
    if (set == 0) {
      // The stage before this one was multiplied.
      if (left + 1 < halves) release(WIDES_FREE + wide_barrier(number - 1));
    } else {
      // Both halves of this stage's rows were read.
      release(FREE + stage_barrier(number));
      number++;
      if (more) full();
    }
    if (more) load(set ^ 1);
    issue(Constant<2>{}, of.mixed, differences);
    return more;
  };
  while (step(Constant<0>{}) && step(Constant<1>{})) {}
  wgmma_wait<0>();
  if (halves & 1) release(FREE + stage_barrier(number)), number++;
  release(WIDES_FREE + wide_barrier(number - 1));
}

// Sums of a job from this warp. Where they go is worked out once more: there are no registers to keep it while it multiplies.
INLINE void finish(const Triples& of, const Work& work, unsigned char* shared, u32 tile) {
  const u32 warp = (threadIdx.x >> 5) - 4, row = warp * 16;
  keep(tile);
  const Place job = place(work, tile / CHANNELS);
  unsigned char* const to = (unsigned char*)work.sums + (u64)tile * TILE;
  unsigned char* const staging = shared + STAGING_AT + warp * STAGING;
  const Target target = {to, row, work.inputs - job.row * EDGE, nullptr, staging, job.row == job.column, work.add != 0};
  store_job(of, work, job, target, threadIdx.x & 31);
}

KERNEL __launch_bounds__(THREADS, 1) correlate_wgmma(const __grid_constant__ TensorMap map, const __grid_constant__ TensorMap last,
    u64 sums, u32 channels, u32 inputs, u32 blocks, u32 tiles, u32 jobs, u32 halves, u32 add) {
#if HAS_WGMMA
  SHARED_MEMORY(shared);
  const Work work = {sums, channels, inputs, blocks, tiles, jobs, halves, add};
  const u32 base = shared_address(shared);
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < STAGES; i++) barrier_init(base + FULL + i * 8, 1), barrier_init(base + FREE + i * 8, 12);
    for (u32 i = 0; i < WIDES; i++) barrier_init(base + WIDES_FULL + i * 8, 4), barrier_init(base + WIDES_FREE + i * 8, 8);
    barrier_init_fence();
  }
  __syncthreads();
  const u32 warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
  if (warp < 4) {
    registers_fewer<40>();
    prepare(work, map, last, shared, base, threadIdx.x);
  } else {
    registers_more<232>();
    const u32 mine = (warp - 4) * 16 + (threadIdx.x & 15);
    const Lane lane = {base, threadIdx.x & 31, mine * 64, mine >> 1 & 3, threadIdx.x >> 4 & 1};
    u32 number = 0;
    for_each_job(work, [&](const Place& job) {
      Triples of;
      of.clear();
      multiply(of, lane, number, halves, task_of(work, job, warp / 4 - 1));
      finish(of, work, shared, job.tile);
    });
    bulk_wait_read<0>();
  }
#endif
}
