// Measures memory bandwidth by copying and by reading: the memory roofs of a device.
// Grid: enough blocks to fill the device, 256 threads each; no shared memory.
#include "device.cuh"

KERNEL copy(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
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
