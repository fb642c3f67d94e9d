// Copies memory as fast as it can be read and written: the roof of what a device's memory allows.
// Grid: as many blocks as fill the device, 256 threads each; no shared memory.
#include "device.cuh"

KERNEL copy(const uint4* __restrict__ from, uint4* __restrict__ to, u64 count) {
  const u64 stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) to[i] = from[i];
}
