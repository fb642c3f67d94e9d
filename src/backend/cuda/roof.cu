// Copies memory, and reads it, as fast as can be: the roofs of what a device's memory allows.
// Grid: as many blocks as fill the device, 256 threads each; no shared memory.
#include "device.cuh"

KERNEL copy(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}

// What is written depends on all words, so that no read can be left out.
KERNEL read(const uint4* __restrict__ from, u32* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  u32 sum = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 word = from[i];
    sum += word.x ^ word.y ^ word.z ^ word.w;
  }
  atomicAdd(to, sum);
}
