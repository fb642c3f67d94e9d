// Samples of 4 bits become bytes on their way from one place in shared memory to another: 16 times their parts.
#pragma once
#include "wgmma.cuh"

// Where the chunk of 16 bytes of an input begins that is chunk 0 unless they are swapped; exclusive or with 16 times a number gives
// the others. Slots begin at multiples of 1024 bytes of shared memory, raw ones of 512.
INLINE u32 raw_at(u32 slot, u32 input) { return slot + input * 64 + (input >> 1 & 3) * 16; }
INLINE u32 wide_at(u32 slot, u32 input) { return slot + input * 128 + (input & 7) * 16; }

// 16 samples become two chunks, of real parts and of imaginary ones. The sum of `sum` and the latter.
INLINE i32 widen_samples(unsigned char* shared, const uint4& w, u32 to, u32 chunk, i32 sum) {
  const u32 m = 0xf0f0f0f0u;
  const uint4 low = make_uint4(w.x << 4 & m, w.y << 4 & m, w.z << 4 & m, w.w << 4 & m);
  *(uint4*)(shared + (to ^ chunk * 32)) = make_uint4(w.x & m, w.y & m, w.z & m, w.w & m);
  *(uint4*)(shared + (to ^ chunk * 32 ^ 16)) = low;
  return sum_bytes(low, 0x01010101, sum);
}
// All 64 of an input.
INLINE i32 widen_input(unsigned char* shared, u32 from, u32 to, i32 sum) {
  uint4 words[4];
#pragma unroll
  for (u32 chunk = 0; chunk < 4; chunk++) words[chunk] = *(const uint4*)(shared + (from ^ chunk * 16));
#pragma unroll
  for (u32 chunk = 0; chunk < 4; chunk++) sum = widen_samples(shared, words[chunk], to, chunk, sum);
  return sum;
}
