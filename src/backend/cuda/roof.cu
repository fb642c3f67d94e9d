// Measures memory bandwidth by copying and by reading: the memory roofs of a device.
// Grid: enough blocks to fill the device, 256 threads each; no shared memory.
#include "device.cuh"

// Copies with UNROLL loads in flight per thread.
template <u32 UNROLL>
INLINE void copy_words(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (UNROLL - 1) * stride < count; i += UNROLL * stride) {
    uint4 words[UNROLL];
#pragma unroll
    for (u32 k = 0; k < UNROLL; k++) words[k] = from[i + k * stride];
#pragma unroll
    for (u32 k = 0; k < UNROLL; k++) to[i + k * stride] = words[k];
  }
  for (; i < count; i += stride) to[i] = from[i];
}

KERNEL copy1(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  copy_words<1>(from, to, count);
}

KERNEL copy4(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  copy_words<4>(from, to, count);
}

KERNEL copy8(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  copy_words<8>(from, to, count);
}

// The output depends on every word, so the compiler cannot drop a read.
KERNEL read(const uint4* __restrict__ from, u32* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  u32 sum = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 word = from[i];
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  atomicAdd(to, sum);
}
