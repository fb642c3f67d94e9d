// Corner turn of recorded voltages that need no delay correction: rows (antenna, recorded channel, polarization) of
// times go to the order of the X-engine (channel, input, time), 16 bytes per thread. Rows are padded to a multiple of
// 16 bytes on both sides.
#include "device.cuh"

constexpr u32 ROWS = 8;

KERNEL __launch_bounds__(256)
    copy_streams(const u8* voltages, u64 stride, u32 pieces, u32 coarse_channels, u32 polarizations, const u32* inputs,
                 u8* to, u64 channel_stride, u64 input_stride) {
  const u32 piece = blockIdx.x * 32 + threadIdx.x % 32, antenna = blockIdx.z, own = coarse_channels * polarizations;
  if (piece >= pieces) return;
  const u32 first = (blockIdx.y * 8 + threadIdx.x / 32) * ROWS, input = inputs[antenna];
  const u8* from = voltages + (u64)antenna * own * stride;
  uint4 values[ROWS];
#pragma unroll
  for (u32 i = 0; i < ROWS; i++)
    if (first + i < own) values[i] = __ldcs((const uint4*)(from + (first + i) * stride) + piece);
#pragma unroll
  for (u32 i = 0; i < ROWS; i++) {
    const u32 row = first + i;
    if (row < own)
      ((uint4*)(to + row / polarizations * channel_stride + (u64)(input + row % polarizations) * input_stride))[piece] = values[i];
  }
}
