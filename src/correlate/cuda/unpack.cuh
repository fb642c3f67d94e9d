// Unpacks 4-bit samples to bytes, from shared memory to shared memory. Bytes hold 16 times the parts.
#pragma once
#include "wgmma.cuh"

// Unpacks 16 samples to 16 bytes of real parts and 16 bytes of imaginary parts. Returns `sum` plus the imaginary
// parts.
INLINE i32 unpack_samples(const uint4& w, unsigned char* real, unsigned char* imaginary, i32 sum) {
  const u32 m = 0xf0f0f0f0u;
  const uint4 low = make_uint4(w.x << 4 & m, w.y << 4 & m, w.z << 4 & m, w.w << 4 & m);
  *(uint4*)real = make_uint4(w.x & m, w.y & m, w.z & m, w.w & m);
  *(uint4*)imaginary = low;
  return sum_bytes(low, 0x01010101, sum);
}
