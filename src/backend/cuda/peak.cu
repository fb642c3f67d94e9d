// Measures the peak multiply-add rates of a device: the arithmetic roofs.
// Grid: as many blocks as fill the device; 256 threads each; dynamic shared memory: 16 KiB and 1 KiB to align it.
#include "device.cuh"

// Returns pseudo-random bits, so that the GPU draws as much power as with real data.
INLINE u32 noise(u32 x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// 8-bit integer products on tensor cores, per round: 16 of 64 x 128 x 32 per warpgroup (wgmma), or 16 of 16 x 8 x 32
// per warp (mma).
#if __CUDA_ARCH__ >= 800
KERNEL __launch_bounds__(256, 1) integers(i32* __restrict__ out, u32 rounds) {
  u32 a[2][4];
  for (u32 i = 0; i < 8; i++) a[i / 4][i % 4] = noise(threadIdx.x * 8 + i);
#if HAS_WGMMA
  SHARED_MEMORY(bytes);
  for (u32 i = threadIdx.x; i < 4096; i += 256) ((u32*)bytes)[i] = noise(i);
  fence_async_shared();
  __syncthreads();
  const u64 b = wgmma_swizzled(shared_address(bytes));
  i32 left[64], right[64];
  for (u32 i = 0; i < 64; i++) left[i] = right[i] = 0;
  for (u32 round = 0; round < rounds; round++) {
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < 8; k++) wgmma_s8<128>(left, a[0], b + 2 * (k % 4), 1), wgmma_s8<128>(right, a[1], b + 2 * (k % 4), 1);
    wgmma_commit();
    wgmma_wait<0>();
  }
  i32 sum = 0;
  for (u32 i = 0; i < 64; i++) sum += left[i] ^ right[i];
#else
  i32 c[16][4] = {};
  for (u32 round = 0; round < rounds; round++) {
#pragma unroll
    for (u32 k = 0; k < 16; k++) {
      const u32 b[2] = {a[k % 2][0] ^ k, a[k % 2][1] ^ k};
      mma_16x8x32_s8(c[k], a[k % 2], b);
    }
  }
  i32 sum = 0;
  for (u32 i = 0; i < 64; i++) sum += c[i / 4][i % 4];
#endif
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

// Floating-point products on tensor cores, 16 per round and warp: of 16 x 8 x 8 (tf32) or of 16 x 8 x 16 (f16).
#define FLOAT_PRODUCTS(name, product, ONES)                                                            \
  KERNEL __launch_bounds__(256) name(float* __restrict__ out, u32 rounds) {                            \
    const u32 ones = (ONES), a[4] = {ones, ones ^ threadIdx.x << 13, ones, ones}, b[2] = {ones, ones}; \
    float c[16][4] = {};                                                                               \
    for (u32 round = 0; round < rounds; round++) {                                                     \
      _Pragma("unroll") for (u32 k = 0; k < 16; k++) product(c[k], a, b);                              \
    }                                                                                                  \
    float sum = 0;                                                                                     \
    for (u32 i = 0; i < 64; i++) sum += c[i / 4][i % 4];                                               \
    out[blockIdx.x * 256 + threadIdx.x] = sum;                                                         \
  }
FLOAT_PRODUCTS(tf32, mma_16x8x8_tf32, 0x3f800000u)
FLOAT_PRODUCTS(halves, mma_16x8x16_f16, 0x3c003c00u)
#endif

// Fused multiply-adds of floats: 64 per round and thread.
KERNEL __launch_bounds__(256) floats(float* __restrict__ out, u32 rounds) {
  const float a = 1.0f - 1e-6f * (float)threadIdx.x, b = 1e-3f * (float)blockIdx.x;
  float c[16];
  for (u32 i = 0; i < 16; i++) c[i] = (float)i;
  for (u32 round = 0; round < rounds; round++) {
#pragma unroll
    for (u32 i = 0; i < 64; i++) c[i % 16] = fmaf(c[i % 16], a, b);
  }
  float sum = 0;
  for (u32 i = 0; i < 16; i++) sum += c[i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
