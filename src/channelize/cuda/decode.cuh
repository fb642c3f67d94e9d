// Decodes recorded samples to single precision. A word holds one row's samples of two neighbouring channels.
// The default avoids the slow integer-to-float instruction: a byte or short with its sign bit flipped, placed in the
// mantissa of 2^23, equals the number plus 2^23 plus the weight of the sign bit. One exact subtraction removes the
// offset.
#pragma once
#include "device.cuh"

#define COMPLEX_4 0
#define COMPLEX_8 1
#define COMPLEX_OFFSET_8 2
#define COMPLEX_16 3
#define COMPLEX_F32 4

// Conversion of bytes to floats: 0 by subtraction, 1 by integer-to-float of a sign-extended word, 2 by byte-to-float.
#ifndef CONVERSION
#define CONVERSION 0
#endif

constexpr float MANTISSA = 8388608.f;

// Returns byte `i` of a word as an unsigned number (0 to 255) minus `zero`.
INLINE float unsigned_byte(u32 word, int i, float zero) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440 + i)) - (MANTISSA + zero);
}

// Returns byte `i` as two's complement; `flipped` is the word with its sign bits flipped.
INLINE float signed_byte(u32 word, u32 flipped, int i) {
#if CONVERSION == 1
  return __int2float_rn((i32)permute_bytes(word, word, 0x8880 + 0x1111 * i));
#elif CONVERSION == 2
  return (float)(i8)(word >> 8 * i);
#else
  return unsigned_byte(flipped, i, 128.f);
#endif
}

// Returns short `i` as two's complement; `flipped` is the word with its sign bits flipped.
INLINE float signed_short(u32 word, u32 flipped, int i) {
#if CONVERSION == 1
  return __int2float_rn((i32)permute_bytes(word, word, i ? 0xBB32 : 0x9910));
#elif CONVERSION == 2
  return (float)(i16)(word >> 16 * i);
#else
  return __uint_as_float(__byte_perm(flipped, 0x4B000000u, i ? 0x7432 : 0x7410)) - (MANTISSA + 32768.f);
#endif
}

#if ENCODING == COMPLEX_4
typedef u16 Word;
INLINE float4 decode(Word word) {
  const u32 flipped = word ^ 0x8888u, low = flipped & 0x0F0Fu, high = flipped >> 4 & 0x0F0Fu;
  return make_float4(unsigned_byte(high, 0, 8.f), unsigned_byte(low, 0, 8.f), unsigned_byte(high, 1, 8.f),
                     unsigned_byte(low, 1, 8.f));
}
#elif ENCODING == COMPLEX_8
typedef u32 Word;
INLINE float4 decode(Word word) {
  const u32 flipped = word ^ 0x80808080u;
  return make_float4(signed_byte(word, flipped, 0), signed_byte(word, flipped, 1), signed_byte(word, flipped, 2),
                     signed_byte(word, flipped, 3));
}
#elif ENCODING == COMPLEX_OFFSET_8
typedef u32 Word;
INLINE float4 decode(Word word) {
  return make_float4(unsigned_byte(word, 0, 128.f), unsigned_byte(word, 1, 128.f), unsigned_byte(word, 2, 128.f),
                     unsigned_byte(word, 3, 128.f));
}
#elif ENCODING == COMPLEX_16
typedef uint2 Word;
INLINE float4 decode(Word word) {
  const u32 first = word.x ^ 0x80008000u, second = word.y ^ 0x80008000u;
  return make_float4(signed_short(word.x, first, 0), signed_short(word.x, first, 1), signed_short(word.y, second, 0),
                     signed_short(word.y, second, 1));
}
#elif ENCODING == COMPLEX_F32
typedef float4 Word;
INLINE float4 decode(Word word) { return word; }
#endif
