// Resampling before and after the filters: downsamples the input to all rates and upsamples the sums of the lower
// rates.
//
// downsample_input: copies new full-rate samples into their ring and computes each lower rate from the rate above it.
// upsample: one block per template that has lower rates. From the lowest rate up, upsamples the sums by 2 and adds
// them to those of the next rate.
#include "device.cuh"

struct Level {
  u64 input, sums;  // offset of the first element
  u32 mask, sums_mask;
};
// Nonzero tap of a resampling filter and the samples it reaches back.
struct Tap {
  float weight;
  i32 back;
};
// Template that has filters at lower rates.
struct Deep {
  i32 row;     // output row
  u32 depth;   // lowest rate
  u32 own;     // bit m: the template has filters at rate m
  u32 rows;    // index in `rows` of its rows of sums at rates 1, 2 ..
};

INLINE u64 at_level(u64 sample, int level) { return (sample + (1ull << level) - 1) >> level; }
INLINE float finite(float x) { return fabsf(x) < __int_as_float(0x7f800000) ? x : 0.0f; }

// Shared memory: samples of the rate above that a block's next outputs need, and the taps.
struct Window {
  float* samples;
  Tap* taps;
  u32 count, reach;   // number of taps, and samples they reach back
};

// Downsamples by 2. Four threads compute one output, each with a quarter of the taps, so a block computes
// blockDim.x / 4 outputs at a time. `fresh`: samples of the rate above from `begin` on that are not in its ring
// yet, or null.
INLINE void halve(const Window& window, const float* ring, u32 ring_mask, const float* fresh, u64 begin, float* to, u32 mask, u64 first, u64 end) {
  u32 part = threadIdx.x % 4, turn = blockDim.x / 4, whole = window.count / 4 * 4;
  for (u64 from = first + blockIdx.x * turn; from < end; from += gridDim.x * turn) {
    u32 outputs = (u32)smaller<u64>(turn, end - from), place = (u32)(2 * from) - window.reach;
    __syncthreads();
    for (u32 i = threadIdx.x; i < 2 * outputs + window.reach - 1; i += blockDim.x) {
      i32 late = (i32)(place + i - (u32)begin);
      window.samples[i] = fresh && late >= 0 ? finite(fresh[late]) : ring[(place + i) & ring_mask];
    }
    __syncthreads();
    u32 output = threadIdx.x / 4;
    const float* x = window.samples + 2 * smaller(output, outputs - 1) + window.reach;
    float sum = 0;
#pragma unroll 8
    for (u32 tap = part; tap < whole; tap += 4) sum = fmaf(window.taps[tap].weight, x[-window.taps[tap].back], sum);
    if (part == 0)
      for (u32 tap = whole; tap < window.count; tap++) sum = fmaf(window.taps[tap].weight, x[-window.taps[tap].back], sum);
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (output < outputs && part == 0) to[(from + output) & mask] = sum;
  }
}

// Computes rates first .. last, each from the one above. The grid has no barrier between rates, so either first is 0
// and last is 0 or 1, or first equals last, or the grid has one block. reach: samples that the taps reach back.
KERNEL __launch_bounds__(1024, 1)
    downsample_input(const float* input, u32 times, u64 begin, const Level* levels, u32 first, u32 last, float* inputs, const Tap* taps, u32 count, u32 reach) {
  SHARED_MEMORY(shared);
  Window window = {(float*)((Tap*)shared + count), (Tap*)shared, count, reach};
  if (last > 0)
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) window.taps[i] = taps[i];
  for (u32 level = first; level <= last; level++) {
    Level own = levels[level];
    float* to = inputs + own.input;
    if (level == 0) {
      for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < times; i += gridDim.x * blockDim.x) to[(begin + i) & own.mask] = finite(input[i]);
      continue;
    }
    Level above = levels[level - 1];
    // Other blocks still copy the full-rate samples into the ring, so rate 1 reads the input directly.
    const float* fresh = level == 1 ? input : nullptr;
    halve(window, inputs + above.input, above.mask, fresh, begin, to, own.mask, at_level(begin, level), at_level(begin + times, level));
    __syncthreads();
  }
}

// Positions that a thread upsamples at a time, so that each tap is read once for all of them.
constexpr int PLACES = 4;

// Sums of one rate in shared memory: the last ones of earlier launches, which the taps reach, and the new ones.
struct Held {
  float2* sums;
  i64 first, begin, end;
};
// Taps in shared memory: those of even output samples, then those of odd ones.
struct Taps {
  const Tap* all;
  u32 evens, odds;
};

// Computes the upsampled sums, even and odd samples, at positions `at`, `at` + blockDim.x, .. of the lower rate.
INLINE void doubled(float2 (&even)[PLACES], float2 (&odd)[PLACES], const Held& lower, int at, const Taps& taps) {
  int last = (int)(lower.end - lower.first) - 1, place[PLACES];
#pragma unroll
  for (int i = 0; i < PLACES; i++) {
    even[i] = odd[i] = make_float2(0, 0);
    place[i] = smaller(at + i * (int)blockDim.x, last);
  }
#pragma unroll 4
  for (u32 tap = 0; tap < taps.evens; tap++) {
    Tap own = taps.all[tap];
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      float2 z = lower.sums[place[i] - own.back];
      even[i].x = fmaf(own.weight, z.x, even[i].x), even[i].y = fmaf(own.weight, z.y, even[i].y);
    }
  }
#pragma unroll 4
  for (u32 tap = taps.evens; tap < taps.evens + taps.odds; tap++) {
    Tap own = taps.all[tap];
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      float2 z = lower.sums[place[i] - own.back];
      odd[i].x = fmaf(own.weight, z.x, odd[i].x), odd[i].y = fmaf(own.weight, z.y, odd[i].y);
    }
  }
}

// Computes the sums of a rate plus the upsampled sums of the lower rate into shared memory. Sums that the next
// launch's taps reach are also written to the ring. `reach`: samples of the lower rate that the taps reach back.
INLINE void upsample_level(const Held& own, const Held& lower, float2* ring, u32 mask, bool add, u32 reach, const Taps& taps) {
  for (i64 k = own.first + threadIdx.x; k < own.begin; k += blockDim.x) own.sums[k - own.first] = ring[(u32)k & mask];
  // Sample indices below count from an even sample.
  i64 origin = own.begin / 2 * 2;
  int from = (int)(own.begin - origin), till = (int)(own.end - origin), kept = till - (int)reach - 1;
  float2* to = own.sums + (origin - own.first);
  float2 even[PLACES], odd[PLACES];
  for (int at = (int)threadIdx.x; 2 * at < till; at += PLACES * (int)blockDim.x) {
    doubled(even, odd, lower, (int)(origin / 2 - lower.first) + at, taps);
#pragma unroll
    for (int i = 0; i < 2 * PLACES; i++) {
      int n = 2 * (at + i / 2 * (int)blockDim.x) + i % 2;
      if (n < from || n >= till) continue;
      float2 sum = i % 2 ? odd[i / 2] : even[i / 2];
      float2* place = ring + (((u32)origin + n) & mask);
      if (add) sum.x += place->x, sum.y += place->y;
      to[n] = sum;
      if (n >= kept) *place = sum;
    }
  }
}

// Writes the output ratios. `row` points to sample `origin`; from and till count from it. Uses 16-byte accesses if
// `wide`.
INLINE void finish(float2* row, i64 origin, int from, int till, const Held& lower, bool add, bool wide, const Taps& taps) {
  float2 even[PLACES], odd[PLACES];
  for (int at = (int)threadIdx.x; 2 * at < till; at += PLACES * (int)blockDim.x) {
    float4 old[PLACES];
    bool whole[PLACES];
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      int n = 2 * (at + i * (int)blockDim.x);
      whole[i] = wide && n >= from && n + 1 < till;
      old[i] = whole[i] && add ? *(const float4*)(row + n) : make_float4(0, 0, 0, 0);
    }
    doubled(even, odd, lower, (int)(origin / 2 - lower.first) + at, taps);
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      int n = 2 * (at + i * (int)blockDim.x);
      if (whole[i]) {
        *(float4*)(row + n) = make_float4(even[i].x + old[i].x, even[i].y + old[i].y, odd[i].x + old[i].z, odd[i].y + old[i].w);
        continue;
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        if (n + j < from || n + j >= till) continue;
        float2 sum = j ? odd[i] : even[i];
        if (add) sum.x += row[n + j].x, sum.y += row[n + j].y;
        row[n + j] = sum;
      }
    }
  }
}

// begin .. end: new samples at the full rate. known: first output sample. wide: 16-byte accesses of two output
// samples are aligned. reach: samples of the lower rate that the taps reach back. buffer_elements: shared memory for the sums of
// one rate, in elements; consecutive rates alternate between two such buffers, starting with rate 1.
KERNEL __launch_bounds__(256, 4)
    upsample(const Deep* all, const i32* rows, const Level* levels, float2* sums, float2* output, u64 begin, u64 end, u64 known, i64 stride,
             u32 wide, const Tap* all_taps, u32 evens, u32 odds, u32 reach, u32 buffer_elements) {
  SHARED_MEMORY(shared);
  float2* held_sums = (float2*)((Tap*)shared + evens + odds);
  for (u32 i = threadIdx.x; i < evens + odds; i += blockDim.x) ((Tap*)shared)[i] = all_taps[i];
  Taps taps = {(const Tap*)shared, evens, odds};
  Deep deep = all[blockIdx.x];
  i64 first = (i64)larger(begin, known);
  auto held = [&](int level) {
    i64 above = level == 1 ? first : (i64)at_level(begin, level - 1), from = (i64)at_level(begin, level);
    return Held{held_sums + (level % 2 ? 0 : buffer_elements), smaller(from, above / 2 - (i64)reach), from, (i64)at_level(end, level)};
  };
  auto ring = [&](int level) { return sums + levels[level].sums + rows[deep.rows + level - 1] * (levels[level].sums_mask + 1ull); };
  Held lower = held((int)deep.depth);
  const float2* lowest = ring((int)deep.depth);
  for (i64 k = lower.first + threadIdx.x; k < lower.end; k += blockDim.x)
    lower.sums[k - lower.first] = lowest[(u32)k & levels[deep.depth].sums_mask];
  for (int level = (int)deep.depth - 1; level > 0; level--) {
    __syncthreads();
    Held own = held(level);
    upsample_level(own, lower, ring(level), levels[level].sums_mask, deep.own >> level & 1, reach, taps);
    lower = own;
  }
  __syncthreads();
  i64 origin = first / 2 * 2;
  float2* row = output + deep.row * stride + (origin - (i64)known);
  finish(row, origin, (int)(first - origin), (int)((i64)end - origin), lower, deep.own & 1, wide, taps);
}
