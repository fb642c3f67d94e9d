// What the device's memory allows: streams of 16-byte words, each thread with several of them under way.
//
// grid: any; block: 512 threads. Each thread takes words a grid apart.
#include "device.cuh"

// from -> to, as it stands.
KERNEL __launch_bounds__(512) copy(uint4* to, const uint4* from, u64 words) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < words; i += 4 * stride) {
    uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
    to[i] = a;
    to[i + stride] = b;
    to[i + 2 * stride] = c;
    to[i + 3 * stride] = d;
  }
  for (; i < words; i += stride) to[i] = from[i];
}

// Reads all words; what it writes depends on all of them, so that no read can be left out.
KERNEL __launch_bounds__(512) read(u32* to, const uint4* from, u64 words) {
  u64 stride = (u64)gridDim.x * blockDim.x;
  u32 sum = 0;
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < words; i += 4 * stride) {
    uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
    sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  for (; i < words; i += stride) {
    uint4 a = from[i];
    sum += a.x ^ a.y ^ a.z ^ a.w;
  }
  atomicAdd(to, sum);
}
