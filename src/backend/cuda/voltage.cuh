// Decodes any sample of a stream of recorded voltages. ENCODING is the index of the voltage encoding in its enumeration.
#pragma once
#include "device.cuh"

struct Complex {
  float re, im;
};
struct Real {
  float re;
};
#if ENCODING < 5
using Sample = Complex;
#else
using Sample = Real;
#endif

// Sign-extends the low nibble of a word (two's complement).
INLINE float nibble(u32 word) { return (float)((i32)(word << 28) >> 28); }
INLINE float signed_byte(u32 word) { return (float)((i32)(word << 24) >> 24); }
INLINE float signed_short(u32 word) { return (float)((i32)(word << 16) >> 16); }
INLINE float offset_byte(u32 word) { return (float)((i32)(word & 255) - 128); }

// Loads sample `at` of a stream.
INLINE Sample load(const u8* row, u64 at) {
#if ENCODING == 0
  const u32 word = row[at];
  return {nibble(word >> 4), nibble(word)};
#elif ENCODING == 1
  const u32 word = ((const u16*)row)[at];
  return {signed_byte(word), signed_byte(word >> 8)};
#elif ENCODING == 2
  const u32 word = ((const u16*)row)[at];
  return {offset_byte(word), offset_byte(word >> 8)};
#elif ENCODING == 3
  const u32 word = ((const u32*)row)[at];
  return {signed_short(word), signed_short(word >> 16)};
#elif ENCODING == 4
  const float2 both = ((const float2*)row)[at];
  return {both.x, both.y};
#elif ENCODING == 5
  // 2-bit codes: the outer levels are 3.316505 times the inner ones.
  const u32 code = row[at >> 2] >> (2 * (u32)(at & 3)) & 3;
  const float level = code == 0 || code == 3 ? 3.316505f : 1.0f;
  return {code < 2 ? -level : level};
#elif ENCODING == 6
  return {nibble(row[at >> 1] >> (4 * (u32)(at & 1)))};
#elif ENCODING == 7
  return {signed_byte(row[at])};
#elif ENCODING == 8
  return {offset_byte(row[at])};
#elif ENCODING == 9
  return {signed_short(((const u16*)row)[at])};
#elif ENCODING == 10
  return {((const float*)row)[at]};
#else
  // Four samples of 10 bits in five bytes, the first in the most significant bits; a sample lies in two bytes.
  const u32 place = (u32)(at & 3);
  const u8* bytes = row + (at >> 2) * 5 + place;
  const u32 pair = (u32)bytes[0] << 8 | bytes[1];
  return {(float)((i32)(pair << (16 + 2 * place)) >> 22)};
#endif
}
