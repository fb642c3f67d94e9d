// What comes before and after the filters: inputs of all rates, and the sums of lower rates brought up.
//
// take_input, one block: new samples of the full rate into their ring, and each lower rate from the one above it.
// bring_up, one block a template that has lower rates: from the lowest rate up, each sum is doubled and added to the next.
#include "device.cuh"

struct Level {
  u64 input, sums;  // first element
  u32 mask, sums_mask;
};
// A tap that is not 0, and how many samples it reaches back.
struct Tap {
  float weight;
  i32 back;
};
// A template with lower rates.
struct Deep {
  i32 row;     // of the output
  u32 depth;   // its lowest rate
  u32 own;     // bit m: it has filters at rate m
  u32 rows;    // where its rows of sums at rates 1, 2 .. stand
};

INLINE u64 at_level(u64 sample, int level) { return (sample + (1ull << level) - 1) >> level; }

KERNEL __launch_bounds__(1024, 1) take_input(const float* input, u32 times, u64 begin, const Level* levels, u32 count, float* inputs, const Tap* taps, u32 tap_count) {
  Level above = levels[0];
  for (u32 i = threadIdx.x; i < times; i += blockDim.x) {
    float x = input[i];
    inputs[above.input + ((begin + i) & above.mask)] = fabsf(x) < __int_as_float(0x7f800000) ? x : 0.0f;
  }
  for (u32 level = 1; level < count; level++) {
    __syncthreads();
    Level own = levels[level];
    const float* from = inputs + above.input;
    u64 end = at_level(begin + times, level);
    for (u64 k = at_level(begin, level) + threadIdx.x; k < end; k += blockDim.x) {
      float sums[4] = {};
      u32 middle = (u32)(2 * k), tap = 0;
      for (; tap + 4 <= tap_count; tap += 4)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] = fmaf(taps[tap + i].weight, from[(middle - taps[tap + i].back) & above.mask], sums[i]);
      for (; tap < tap_count; tap++) sums[0] = fmaf(taps[tap].weight, from[(middle - taps[tap].back) & above.mask], sums[0]);
      inputs[own.input + (k & own.mask)] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
    above = own;
  }
}

// A phase of a doubled sum.
INLINE float2 phase(const float2* lower, u32 mask, u32 at, const Tap* taps, u32 count) {
  float2 sum = make_float2(0, 0);
#pragma unroll 4
  for (u32 i = 0; i < count; i++) {
    float2 z = lower[(at - taps[i].back) & mask];
    sum.x = fmaf(taps[i].weight, z.x, sum.x), sum.y = fmaf(taps[i].weight, z.y, sum.y);
  }
  return sum;
}

KERNEL __launch_bounds__(256) bring_up(const Deep* all, const i32* rows, const Level* levels, float2* sums, float2* output, u64 begin, u64 end,
                                       u64 known, i64 stride, const Tap* taps, u32 even, u32 odd) {
  Deep deep = all[blockIdx.x];
  for (int level = (int)deep.depth - 1; level >= 0; level--) {
    Level lower = levels[level + 1], own = levels[level];
    const float2* from = sums + lower.sums + rows[deep.rows + level] * (lower.sums_mask + 1ull);
    float2* to = output + deep.row * stride;
    u32 first = (u32)known, mask = 0xffffffff;
    u64 n = at_level(begin, level), till = at_level(end, level);
    if (level == 0) n = larger(n, known);
    else to = sums + own.sums + rows[deep.rows + level - 1] * (own.sums_mask + 1ull), first = 0, mask = own.sums_mask;
    bool add = deep.own >> level & 1;
    for (u64 h = n / 2 + threadIdx.x; 2 * h < till; h += blockDim.x) {
      float2 z[2] = {phase(from, lower.sums_mask, (u32)h, taps, even), phase(from, lower.sums_mask, (u32)h, taps + even, odd)};
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (2 * h + i < n || 2 * h + i >= till) continue;
        float2* place = to + (((u32)(2 * h) + i - first) & mask);
        if (add) z[i].x += place->x, z[i].y += place->y;
        *place = z[i];
      }
    }
    __syncthreads();
  }
}
