// Exact products of all pairs of inputs with the matrix instructions of a warp (sm_80 and later), for 8 or 4 bits.
//
// Grid: the blocks that the device runs at once; each processes every gridDim.x-th work unit (channel, item).
// Block: WARPS warps.
//
// | buffer    | axes                                        | type          | access      |
// |-----------|---------------------------------------------|---------------|-------------|
// | `spectra` | channel, input, time                        | complex BITS  | read        |
// | `items`   | item                                        | Item          | read        |
// | `sums`    | channel, tile, row (EDGE), column (EDGE)    | complex i32   | overwritten, or added to |
//
// With a = (r, i) and a' = (i, ~r) as bytes, Re = a . b and Im = a' . b + sum of b's imaginary parts, because -r = ~r
// + 1 and ~r never overflows: one copy of the samples serves both products. 4-bit samples stay packed in shared
// memory. Their nibbles become the high halves of bytes, real and imaginary parts apart, so all sums are scaled by
// 256 until the end.
#include "stages.cuh"

// Operands from ldmatrix, 32 bytes of each row: rows of this step and the next, and columns, each reloaded once it is
// used.
template <int N> struct Fragments {
  u32 a[2][2][4], b[N / 2][4];
  INLINE void load_rows(int into, u32 rows) {
#pragma unroll
    for (int m = 0; m < 2; m++) load_matrix_x4(a[into][m], rows + m * 2048);
  }
  // Returns a lane's words of columns 8 n to 8 n + 7.
  INLINE const u32 (&words(int n) const)[2] { return *(const u32(*)[2])&b[n / 2][n % 2 * 2]; }
  INLINE void load_columns(u32 columns, int n) { load_matrix_x4(b[n], columns + n * 2048); }
};

// Sums over time of the imaginary parts of a tile's columns. All threads read the samples from shared memory; each
// sums one column, or half of one.
#define SIDE (GROUPS * 32 < 128 ? GROUPS * 32 : 128)
#define SHARES (THREADS >= 2 * SIDE ? 2 : 1)
struct Columns {
  u8* memory;
  i32 sum;

  // Adds the columns of a stage; they begin at slot `side` of the stage.
  INLINE void add(const Ring& ring, u32 side) {
    u32 row = side * 32 + threadIdx.x % SIDE, share = threadIdx.x / SIDE;
    if (share >= SHARES) return;
    const u8* from = memory + (ring.current - ring.first) + row * 128;
#pragma unroll
    for (u32 i = 0; i < 8 / SHARES; i++) {
      uint4 words = *(const uint4*)(from + ((share * (8 / SHARES) + i ^ row % 8) << 4));
      sum = count(words.x, count(words.y, count(words.z, count(words.w, sum))));
    }
  }
  INLINE static i32 count(u32 word, i32 sum) {
    return BITS == 8 ? __dp4a((i32)word, 0x01000100, sum) : __dp4a((i32)(word << 4 & 0xf0f0f0f0), 0x01010101, sum);
  }
  INLINE i32* place() const { return (i32*)(memory + STAGES * STAGE_BYTES); }
  // Publishes the sums of all threads in shared memory. The barriers of the next stages protect them from
  // overwriting.
  INLINE void finish() {
    if (threadIdx.x < SIDE * SHARES) place()[threadIdx.x] = BITS == 8 ? sum : sum >> 4;
    sum = 0;
    named_barrier(1, THREADS);
  }
  // Returns the sums of a column and the next.
  INLINE int2 pair(u32 column) const {
    int2 sums = *(const int2*)(place() + column);
    if (SHARES == 1) return sums;
    int2 others = *(const int2*)(place() + SIDE + column);
    return make_int2(sums.x + others.x, sums.y + others.y);
  }
};

// Accumulators of a warp's piece of 32 x 8 N products, in the layout of mma.
template <int N> struct Sums {
  i32 re[2][N][4], im[2][N][4];

  INLINE void clear() {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 8; i++) re[i / 4][n][i % 4] = im[i / 4][n][i % 4] = 0;
  }
#if BITS == 8
  // Multiplies one step and loads the columns of the next step from `next`. Multiplies each of the two row operands `a`
  // with all columns before the next.
  INLINE void multiply(Fragments<N>& f, const u32 (&a)[2][4], u32 next) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
      u32 turned[4];
#pragma unroll
      for (int i = 0; i < 4; i++) turned[i] = permute_bytes(a[m][i], 0, 0x2301) ^ 0xff00ff00;
#pragma unroll
      for (int n = 0; n < N; n++) mma_16x8x32_s8(re[m][n], a[m], f.words(n));
#pragma unroll
      for (int n = 0; n < N; n++) {
        mma_16x8x32_s8(im[m][n], turned, f.words(n));
        if (m && n % 2) f.load_columns(next, n / 2);
      }
    }
  }
  INLINE i32 whole(i32 sum) const { return sum; }
#else
  INLINE void multiply(Fragments<N>& f, const u32 (&from)[2][4], u32 next) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      u32 b[N][2];
#pragma unroll
      for (int n = 0; n < N; n++) {
        u32 word = f.words(n)[half];
        b[n][0] = word & 0xf0f0f0f0, b[n][1] = word << 4 & 0xf0f0f0f0;
        if (half && n % 2) f.load_columns(next, n / 2);
      }
#pragma unroll
      for (int m = 0; m < 2; m++) {
        u32 first = from[m][half * 2], second = from[m][half * 2 + 1];
        u32 a[4] = {first & 0xf0f0f0f0, second & 0xf0f0f0f0, first << 4 & 0xf0f0f0f0, second << 4 & 0xf0f0f0f0};
        u32 turned[4] = {a[2], a[3], ~first & 0xf0f0f0f0, ~second & 0xf0f0f0f0};
#pragma unroll
        for (int n = 0; n < N; n++) mma_16x8x32_s8(re[m][n], a, b[n]);
#pragma unroll
        for (int n = 0; n < N; n++) mma_16x8x32_s8(im[m][n], turned, b[n]);
      }
    }
  }
  INLINE i32 whole(i32 sum) const { return sum >> 8; }
#endif

  // Passes pairs of sums with their addresses to `use`; `to` is the first sum of the piece.
  template <class Use> INLINE void each(i32* to, const Columns& columns, u32 column, Use use) const {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
      int2 more = columns.pair(column + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const i32 *r = &re[i / 2][n][i % 2 * 2], *m = &im[i / 2][n][i % 2 * 2];
        int4 values = make_int4(whole(r[0]), whole(m[0]) + more.x, whole(r[1]), whole(m[1]) + more.y);
        use((int4*)(to + ((i * 8 + lane / 4) * EDGE + n * 8 + lane % 4 * 2) * 2), values);
      }
    }
  }
};
struct Store {
  INLINE void operator()(int4* place, int4 values) const { store_16(place, values.x, values.y, values.z, values.w); }
};
// The results of the atomics are unused, so no register waits for them. Integer sums do not depend on the order.
struct Add {
  INLINE void operator()(int4* place, int4 values) const {
    atomicAdd(&place->x, values.x), atomicAdd(&place->y, values.y);
    atomicAdd(&place->z, values.z), atomicAdd(&place->w, values.w);
  }
};

// Multiplies a warp's piece of one work unit.
template <int N>
INLINE void multiply(Ring& ring, Columns& sides, const Spectra& x, const WorkUnits& work_units, const Piece& piece, i32* to,
                     bool more) {
  u32 lane = threadIdx.x % 32, swizzle = lane % 8;
  u32 rows = (piece.rows * 32 + lane % 16) * 128 + ((lane / 16 ^ swizzle) << 4);
  u32 columns = (piece.columns * 32 + lane / 16 * 8 + lane % 8) * 128 + ((lane / 8 % 2 ^ swizzle) << 4);
  Sums<N> sums;
  Fragments<N> f;
  sums.clear();
  ring.wait();
  f.load_rows(0, ring.current + rows);
#pragma unroll
  for (int n = 0; n < N / 2; n++) f.load_columns(ring.current + columns, n);
  ring.fetch<0, 2>(x, work_units);
  u32 next = 0;
#pragma unroll 1
  for (u32 left = parts(x.bytes, 128u) * 2; left; left--) {
#pragma unroll
    for (int step = 0; step < 2; step++) {
      next = (next + 32) % 128;
      bool turn = step == 1 && next == 0 && left > 1;
      if (turn) ring.wait();
      // After the last step of all, the loaded values are not used.
      f.load_rows((step + 1) % 2, ring.current + (rows ^ next));
      sums.multiply(f, f.a[step], ring.current + (columns ^ next));
      // Issued after products, which keep the tensor cores busy meanwhile.
      if (turn) ring.fetch<0, 2>(x, work_units);
      if (step == 1 && next == 64) {
        ring.fetch<1, 2>(x, work_units);
        sides.add(ring, piece.side);
      }
    }
  }
  sides.finish();
  u32 column = (piece.columns - piece.side) * 32;
  if (more) {
    sums.each(to, sides, column, Add());
  } else {
    sums.each(to, sides, column, Store());
  }
}

KERNEL __launch_bounds__(THREADS, BLOCKS)
multiply_inputs(const u8* samples, u64 channel_stride, u32 input_stride, u32 inputs, u32 bytes, const Item* items,
                u32 items_count, u32 count, u32 tiles, i32* sums, u32 more) {
  SHARED_MEMORY(stages);
  Spectra x = {samples, channel_stride, input_stride, inputs, bytes};
  WorkUnits work_units = {items, items_count, count};
  Ring ring(stages, x, work_units);
  Columns sides = {stages, 0};
  for (u32 work = blockIdx.x; work < count; work += gridDim.x) {
    Piece piece(work_units, work, tiles);
    i32* to = sums + piece.first * 2;
    if (piece.width == 0) {
      // A warp without a piece takes part in barriers, loads and column sums only.
#pragma unroll 1
      for (u32 left = parts(x.bytes, 128u); left; left--) {
        ring.wait();
        ring.fetch<0, 2>(x, work_units), ring.fetch<1, 2>(x, work_units);
        sides.add(ring, piece.side);
      }
      sides.finish();
#if EDGE == 128
    } else if (piece.width == 2) {
      multiply<8>(ring, sides, x, work_units, piece, to, more);
#endif
    } else {
      multiply<4>(ring, sides, x, work_units, piece, to, more);
    }
  }
  copy_async_wait<0>();
}
