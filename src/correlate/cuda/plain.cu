// Products of all inputs on any device: sums[i][j] += x[i] conj(x[j]) over time, for tiles of EDGE x EDGE.
//
// A thread block computes SUB x SUB sums of one channel, each thread 4 x 4 of them. Samples pass through shared
// memory, LENGTH words of each row at a time; there, samples beyond the inputs or the times are zero.
//  - Integers: a word holds two samples (re, im), and each part of the product is one dot product of four bytes. With
//    a' = (im, ~re), Re = a . b and Im = a' . b + sum of b's imaginary parts, because -re = ~re + 1 and ~re never
//    overflows. Parts of 4 bits are in the high halves of bytes, so products are scaled by 256 until the end.
//  - Floats: the terms of a sum are added one by one in the order of time.
#include "device.cuh"
#include "tiles.cuh"

// EDGE: inputs along a tile. BITS: bits of a real or imaginary part: 4, 8, or 32 for floats.
constexpr int SUB = EDGE < 64 ? EDGE : 64, ACROSS = SUB / 4, THREADS = ACROSS * ACROSS, SUBS = EDGE / SUB;
constexpr int LENGTH = BITS == 32 ? 16 : 32, PITCH = LENGTH + 1;
// Samples in LENGTH words, and their bytes in global memory.
constexpr int TIMES = BITS == 32 ? LENGTH : 2 * LENGTH, BYTES = TIMES * BITS / 4;

#if BITS == 32
typedef float2 Word;
typedef float Sum;
typedef float2 Sums;
#else
typedef u32 Word;
typedef i32 Sum;
typedef int2 Sums;
#endif

INLINE i32 dot(u32 a, u32 b, i32 sum) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 610
  return __dp4a((int)a, (int)b, sum);
#else
  for (int i = 0; i < 32; i += 8) sum += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
  return sum;
#endif
}

// Loads 16 bytes of a row, zero from byte `left` on.
INLINE uint4 fetch(const u8* from, i32 left) {
#if BITS == 32
  // A launch may begin at an odd sample, which is aligned to 8 bytes only.
  uint2 low = make_uint2(0, 0), high = make_uint2(0, 0);
  if (left > 0) low = *(const uint2*)from;
  if (left > 8) high = *(const uint2*)(from + 8);
  return make_uint4(low.x, low.y, high.x, high.y);
#else
  u32 words[4] = {0, 0, 0, 0};
  if (left > 0) {
    const uint4 all = *(const uint4*)from;
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const i32 bytes = left - 4 * i;
      if (bytes < 4) words[i] = bytes > 0 ? words[i] & ((1u << 8 * bytes) - 1) : 0;
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
#endif
}

// Unpacks 16 bytes to words.
INLINE void spread(Word* to, uint4 from) {
#if BITS == 32
  to[0] = make_float2(__uint_as_float(from.x), __uint_as_float(from.y));
  to[1] = make_float2(__uint_as_float(from.z), __uint_as_float(from.w));
#elif BITS == 8
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
#else
  const u32 words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 re = words[i] & 0xf0f0f0f0, im = words[i] << 4 & 0xf0f0f0f0;
    to[2 * i] = __byte_perm(re, im, 0x5140), to[2 * i + 1] = __byte_perm(re, im, 0x7362);
  }
#endif
}

// Copies SUB rows of samples, from input `first` on, to shared memory.
INLINE void stage(Word (*rows)[PITCH], const u8* spectra, i64 input_stride, u32 first, u32 inputs, i64 byte, i64 bytes) {
  constexpr int PIECES = BYTES / 16;
  for (int index = threadIdx.x; index < SUB * PIECES; index += THREADS) {
    const int row = index / PIECES, piece = index % PIECES;
    const i64 at = byte + 16 * piece;
    const bool is_there = first + row < inputs && at < bytes;
    const u8* from = spectra + (first + row) * input_stride + at;
    spread(&rows[row][piece * (LENGTH / PIECES)], fetch(from, is_there ? (i32)smaller(bytes - at, (i64)16) : 0));
  }
}

// Adds the products of LENGTH words of a thread's rows and columns.
INLINE void multiply(const Word (*a)[PITCH], const Word (*b)[PITCH], int y, int x, Sum (&re)[4][4], Sum (&im)[4][4]) {
#if BITS != 32
  u32 columns[4] = {0, 0, 0, 0};
#endif
#pragma unroll 4
  for (int k = 0; k < LENGTH; k++) {
    Word rows[4], others[4];
#pragma unroll
    for (int i = 0; i < 4; i++) rows[i] = a[y + ACROSS * i][k], others[i] = b[x + ACROSS * i][k];
#if BITS == 32
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        re[i][j] = fmaf(rows[i].y, others[j].y, fmaf(rows[i].x, others[j].x, re[i][j]));
        im[i][j] = fmaf(-rows[i].x, others[j].y, fmaf(rows[i].y, others[j].x, im[i][j]));
      }
#else
#pragma unroll
    for (int j = 0; j < 4; j++) columns[j] = (u32)dot(others[j], 0x01000100, (i32)columns[j]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const u32 turned = __byte_perm(rows[i], 0, 0x2301) ^ 0xff00ff00;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        re[i][j] = dot(rows[i], others[j], re[i][j]);
        im[i][j] = dot(turned, others[j], im[i][j]);
      }
    }
#endif
  }
#if BITS != 32
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) im[i][j] = (i32)((u32)im[i][j] + columns[j]);
#endif
}

// grid: channels x tiles x (SUBS x SUBS), the last fastest.
KERNEL __launch_bounds__(THREADS) multiply_plain(const u8* spectra, i64 channel_stride, i64 input_stride, u32 inputs, i64 bytes,
                                                 u32 tiles, Sums* sums, u32 add) {
  __shared__ Word a[SUB][PITCH], b[SUB][PITCH];
  const u32 part = blockIdx.x % (SUBS * SUBS), index = blockIdx.x / (SUBS * SUBS), tile = index % tiles;
  const u64 channel = index / tiles;
  const u32 tile_row = triangle_row(tile), tile_column = tile - tile_row * (tile_row + 1) / 2;
  const u32 row = tile_row * EDGE + part / SUBS * SUB, column = tile_column * EDGE + part % SUBS * SUB;
  if (column > row || row >= inputs) return;
  spectra += channel * channel_stride;
  const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
  Sum re[4][4], im[4][4];
  Sums* own = sums + channel * tiles * EDGE * EDGE + tile_element(row + y, column + x);
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const Sums before = BITS == 32 && add ? own[i * ACROSS * EDGE + j * ACROSS] : Sums{0, 0};
      re[i][j] = before.x, im[i][j] = before.y;
    }
  for (i64 byte = 0; byte < bytes; byte += BYTES) {
    stage(a, spectra, input_stride, row, inputs, byte, bytes);
    stage(b, spectra, input_stride, column, inputs, byte, bytes);
    __syncthreads();
    multiply(a, b, y, x, re, im);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      Sums* to = own + i * ACROSS * EDGE + j * ACROSS;
#if BITS == 32
      *to = Sums{re[i][j], im[i][j]};
#else
      constexpr int SHIFT = BITS == 4 ? 8 : 0;
      const Sums before = add ? *to : Sums{0, 0};
      *to = Sums{before.x + (re[i][j] >> SHIFT), before.y + (im[i][j] >> SHIFT)};
#endif
    }
}
