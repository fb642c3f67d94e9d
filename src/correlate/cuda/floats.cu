// Products of all pairs of inputs of single-precision samples, by one of four methods (METHOD):
//  - 0: fused multiply-adds, on any device.
//  - 1: matrix instructions on numbers rounded to 11 bits (tf32).
//  - 3: matrix instructions on numbers split into hi + lo of 11 bits each, without lo x lo: nearly single precision.
//  - 16: matrix instructions on numbers rounded to f16.
//
// Grid, blocks and items: as in mma.cu.
//
// | buffer    | axes                                     | type        | access                   |
// |-----------|------------------------------------------|-------------|--------------------------|
// | `spectra` | channel, input, time                     | complex f32 | read                     |
// | `items`   | item                                     | Item        | read                     |
// | `sums`    | channel, tile, row (EDGE), column (EDGE) | complex f32 | overwritten, or added to |
//
// For samples as vectors (r, i) and b' = (-i, r), Re = a . b and Im = a . b'. A lane's 16 bytes are two samples. Their
// order within a step of the matrix instruction is free, as long as rows and columns agree.
#include "stages.cuh"

// Parts of a stage that are multiplied one after another: chunks of 2 samples, or halves of 8.
#define PARTS (METHOD == 0 ? 8 : 2)

// Adds 0 to get a new value in a new register. Otherwise the compiler moves a value back and forth between its register
// in the loaded sample or tile and the one that the matrix instruction requires.
INLINE float apart(float x) { return x + 0.0f; }

#if METHOD == 16
// Operands of two samples: of two rows, and of a column.
struct Rows {
  u32 a[4];
  INLINE Rows(float4 x, float4 y)
      : a{round_halves(x.x, x.y), round_halves(y.x, y.y), round_halves(x.z, x.w), round_halves(y.z, y.w)} {}
};
struct Columns {
  u32 b[2];
  INLINE Columns(float4 x) : b{round_halves(x.x, x.y), round_halves(x.z, x.w)} {}
};
INLINE void add(float (&c)[4], const Rows& a, const Columns& b) { mma_16x8x16_f16(c, a.a, b.b); }
#elif METHOD == 1
INLINE u32 row_tf32(float x) { return __float_as_uint(apart(__uint_as_float(round_tf32(x)))); }
struct Rows {
  u32 a[2][4];
  INLINE Rows(float4 x, float4 y)
      : a{{row_tf32(x.x), row_tf32(y.x), row_tf32(x.y), row_tf32(y.y)},
          {row_tf32(x.z), row_tf32(y.z), row_tf32(x.w), row_tf32(y.w)}} {}
};
struct Columns {
  u32 b[2][2];
  INLINE Columns(float4 x) : b{{round_tf32(x.x), round_tf32(x.y)}, {round_tf32(x.z), round_tf32(x.w)}} {}
};
INLINE void add(float (&c)[4], const Rows& a, const Columns& b) {
#pragma unroll
  for (int i = 0; i < 2; i++) mma_16x8x8_tf32(c, a.a[i], b.b[i]);
}
#elif METHOD == 3
// Splits a number into one rounded to 11 bits and the exact remainder, which is NaN if the number is not finite.
INLINE void split(float x, u32& high, u32& low) {
  high = (__float_as_uint(x) + 0x1000) & 0xffffe000;
  low = __float_as_uint(x - __uint_as_float(high));
}
struct Rows {
  u32 high[2][4], low[2][4];
  INLINE Rows(float4 x, float4 y) {
    split(x.x, high[0][0], low[0][0]), split(y.x, high[0][1], low[0][1]);
    split(x.y, high[0][2], low[0][2]), split(y.y, high[0][3], low[0][3]);
    split(x.z, high[1][0], low[1][0]), split(y.z, high[1][1], low[1][1]);
    split(x.w, high[1][2], low[1][2]), split(y.w, high[1][3], low[1][3]);
  }
};
struct Columns {
  u32 high[2][2], low[2][2];
  INLINE Columns(float4 x) {
    split(x.x, high[0][0], low[0][0]), split(x.y, high[0][1], low[0][1]);
    split(x.z, high[1][0], low[1][0]), split(x.w, high[1][1], low[1][1]);
  }
};
// Adds the small products first.
INLINE void add(float (&c)[4], const Rows& a, const Columns& b) {
#pragma unroll
  for (int i = 0; i < 2; i++) mma_16x8x8_tf32(c, a.low[i], b.high[i]), mma_16x8x8_tf32(c, a.high[i], b.low[i]);
#pragma unroll
  for (int i = 0; i < 2; i++) mma_16x8x8_tf32(c, a.high[i], b.high[i]);
}
#endif

#if METHOD == 0
// Lane l has rows l / 8 + 4 i and columns l % 8 + 8 n.
template <int N> struct Sums {
  float re[8][N], im[8][N];
  INLINE static u32 row(u32 lane) { return lane / 8; }
  INLINE static u32 column(u32 lane) { return lane % 8; }
  INLINE static u32 chunk(u32) { return 0; }

  INLINE void multiply(const u8* memory, u32 rows, u32 columns) {
    float4 a[8];
#pragma unroll
    for (int i = 0; i < 8; i++) a[i] = *(const float4*)(memory + (rows ^ i % 2 * 64) + i * 512);
#pragma unroll
    for (int n = 0; n < N; n++) {
      float4 b = *(const float4*)(memory + columns + n * 1024);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        re[i][n] = fmaf(a[i].x, b.x, re[i][n]), im[i][n] = fmaf(a[i].y, b.x, im[i][n]);
        re[i][n] = fmaf(a[i].y, b.y, re[i][n]), im[i][n] = fmaf(-a[i].x, b.y, im[i][n]);
        re[i][n] = fmaf(a[i].z, b.z, re[i][n]), im[i][n] = fmaf(a[i].w, b.z, im[i][n]);
        re[i][n] = fmaf(a[i].w, b.w, re[i][n]), im[i][n] = fmaf(-a[i].z, b.w, im[i][n]);
      }
    }
  }
  // Passes the sums with their addresses in the tile to `use`.
  template <class Use> INLINE void each(float* to, Use use) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int n = 0; n < N; n++) use((float2*)to + (row(lane) + 4 * i) * EDGE + column(lane) + 8 * n, re[i][n], im[i][n]);
  }
};
#else
// Layout of the matrix instruction: lane l has rows l / 4 + 8 i and, of columns 8 n to 8 n + 7, 2 (l % 4) and the
// next.
template <int N> struct Sums {
  float re[2][N][4], im[2][N][4];
  INLINE static u32 row(u32 lane) { return lane / 4; }
  INLINE static u32 column(u32 lane) { return lane / 4; }
  INLINE static u32 chunk(u32 lane) { return 2 * (lane % 4); }

  INLINE void multiply(const u8* memory, u32 rows, u32 columns) {
    float4 a[4];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = *(const float4*)(memory + rows + i * 1024);
    Rows with[2] = {Rows(a[0], a[1]), Rows(a[2], a[3])};
    float4 next = *(const float4*)(memory + columns);
#pragma unroll
    for (int n = 0; n < N; n++) {
      float4 b = next;
      if (n + 1 < N) next = *(const float4*)(memory + columns + (n + 1) * 1024);
      Columns by(b), turned(make_float4(-b.y, b.x, -b.w, b.z));
#pragma unroll
      for (int m = 0; m < 2; m++) add(re[m][n], with[m], by), add(im[m][n], with[m], turned);
    }
  }
  template <class Use> INLINE void each(float* to, Use use) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float4* place = (float4*)((float2*)to + (row(lane) + 8 * i) * EDGE + 8 * n + lane % 4 * 2);
        float *r = &re[i / 2][n][i % 2 * 2], *m = &im[i / 2][n][i % 2 * 2];
        use(place, r[0], m[0], r[1], m[1]);
      }
  }
};
#endif

// Initial values of the sums: zero, or the stored tile.
struct ZeroSums {
  INLINE void operator()(const float2*, float& re, float& im) const { re = im = 0; }
  INLINE void operator()(const float4*, float& re, float& im, float& re2, float& im2) const { re = im = re2 = im2 = 0; }
};
struct LoadSums {
  INLINE void operator()(const float2* place, float& re, float& im) const { re = apart(place->x), im = apart(place->y); }
  INLINE void operator()(const float4* place, float& re, float& im, float& re2, float& im2) const {
    float4 old = *place;
    re = apart(old.x), im = apart(old.y), re2 = apart(old.z), im2 = apart(old.w);
  }
};
struct StoreSums {
  INLINE void operator()(float2* place, float re, float im) const { *place = make_float2(apart(re), apart(im)); }
  INLINE void operator()(float4* place, float re, float im, float re2, float im2) const {
    *place = make_float4(apart(re), apart(im), apart(re2), apart(im2));
  }
};

// Multiplies a warp's piece of one work unit.
template <int N>
INLINE void multiply(Ring& ring, const u8* memory, const Spectra& x, const WorkUnits& work_units, const Piece& piece, float* to,
                     bool more) {
  u32 lane = threadIdx.x % 32, row = Sums<N>::row(lane), column = Sums<N>::column(lane), chunk = Sums<N>::chunk(lane);
  u32 rows = (piece.rows * 32 + row) * 128 + ((chunk ^ row % 8) << 4);
  u32 columns = (piece.columns * 32 + column) * 128 + ((chunk ^ column % 8) << 4);
  Sums<N> sums;
  if (more) {
    sums.each(to, LoadSums());
  } else {
    sums.each(to, ZeroSums());
  }
#pragma unroll 1
  for (u32 left = parts(x.bytes, 128u); left; left--) {
    ring.wait();
    ring.fetch<0, 1>(x, work_units);
    u32 stage = ring.current - ring.first;
#pragma unroll 1
    for (u32 part = 0; part < PARTS; part++) sums.multiply(memory, stage + (rows ^ part << 4), stage + (columns ^ part << 4));
  }
  sums.each(to, StoreSums());
}

KERNEL __launch_bounds__(THREADS, BLOCKS)
multiply_inputs(const u8* samples, u64 channel_stride, u32 input_stride, u32 inputs, u32 bytes, const Item* items,
                u32 items_count, u32 count, u32 tiles, float* sums, u32 more) {
  SHARED_MEMORY(stages);
  Spectra x = {samples, channel_stride, input_stride, inputs, bytes};
  WorkUnits work_units = {items, items_count, count};
  Ring ring(stages, x, work_units);
  for (u32 work = blockIdx.x; work < count; work += gridDim.x) {
    Piece piece(work_units, work, tiles);
    float* to = sums + piece.first * 2;
    if (piece.width == 0) {
      // A warp without a piece takes part in barriers and loads only.
#pragma unroll 1
      for (u32 left = parts(x.bytes, 128u); left; left--) ring.wait(), ring.fetch<0, 1>(x, work_units);
#if EDGE == 128
    } else if (piece.width == 2) {
      multiply<8>(ring, stages, x, work_units, piece, to, more);
#endif
    } else {
      multiply<4>(ring, stages, x, work_units, piece, to, more);
    }
  }
  copy_async_wait<0>();
}
