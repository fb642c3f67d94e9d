// Corner turn of a packed block from the host: channel, panel, step, input -> channel, input, step.
//
// A step is the unit that is contiguous for one input: a pair of 4-bit or 8-bit samples, or the real or imaginary part
// of a float sample. A thread block transposes the 16 inputs of a panel over STEPS steps through shared memory.
#include "device.cuh"

// UNIT: bytes of a step: 2 or 4.
#if UNIT == 2
typedef u16 Unit;
#else
typedef u32 Unit;
#endif
constexpr int LANES = 16, EACH = 16 / UNIT, STEPS = 64 * EACH / 4, PITCH = STEPS + EACH;

// grid: channels x panels x parts of the steps, the last fastest. Rows are `input_stride` bytes apart, a multiple of
// 16.
KERNEL __launch_bounds__(256) corner_turn(const uint4* packed, u32 panels, u32 inputs, i64 steps, u32 parts, u8* output,
                                   i64 channel_stride, i64 input_stride) {
  __shared__ __align__(16) Unit rows[LANES][PITCH];
  const u32 part = blockIdx.x % parts, index = blockIdx.x / parts, panel = index % panels;
  const u64 channel = index / panels;
  const i64 first = (i64)part * STEPS;
  // 16 bytes of a step hold EACH inputs.
  constexpr int PIECES = LANES / EACH;
  for (int at = threadIdx.x; at < STEPS * PIECES; at += 256) {
    const int step = at / PIECES, input = at % PIECES * EACH;
    uint4 four = make_uint4(0, 0, 0, 0);
    if (first + step < steps) four = packed[(index * steps + first + step) * PIECES + at % PIECES];
    const Unit* units = (const Unit*)&four;
#pragma unroll
    for (int k = 0; k < EACH; k++) rows[input + k][step] = units[k];
  }
  __syncthreads();
  u8* to = output + channel * channel_stride + first * UNIT;
  for (int at = threadIdx.x; at < LANES * STEPS / EACH; at += 256) {
    const u32 row = at / (STEPS / EACH), step = at % (STEPS / EACH) * EACH, input = panel * LANES + row;
    if (input < inputs && first + step < steps) *(uint4*)(to + input * input_stride + step * UNIT) = *(const uint4*)&rows[row][step];
  }
}
