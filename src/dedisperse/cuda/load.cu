// Loads filterbank rows (time, channel) into the history (channel, time): unpacks, clips to the plan's range,
// subtracts the range's lower end and sums over DOWNSAMPLE times.
#include "device.cuh"

// BITS: bits of an input sample. SIGNED, FLOATS: 0 or 1. ELEMENT: type of a sample of the history.
typedef ELEMENT Element;
constexpr int THREADS = 256, CHANNELS = 128, QUADS = 32 / (int)sizeof(Element), TIMES = 4 * QUADS;
constexpr u32 MASK = ~0u >> (32 - BITS);
#if FLOATS
typedef float Value;
#else
typedef u32 Value;
#endif

template <class T> struct Four;
template <> struct Four<u8> { typedef u32 Type; };
template <> struct Four<u16> { typedef uint2 Type; };
template <> struct Four<u32> { typedef uint4 Type; };
template <> struct Four<float> { typedef float4 Type; };
typedef Four<Element>::Type Quad;

INLINE u32 packed(const u32 (&v)[4], u32) { return v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24; }
INLINE uint2 packed(const u32 (&v)[4], uint2) { return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16); }
INLINE uint4 packed(const u32 (&v)[4], uint4) { return make_uint4(v[0], v[1], v[2], v[3]); }
INLINE float4 packed(const float (&v)[4], float4) { return make_float4(v[0], v[1], v[2], v[3]); }

struct Range {
  i32 low, high;
};

#if FLOATS
INLINE Value valued(u32 bits, Range) { return __uint_as_float(bits); }
#else
// Converts a sample's bits to its offset above the range's lower end, after clipping.
INLINE Value valued(u32 bits, Range range) {
  const i32 value = SIGNED ? (i32)(bits << (32 - BITS)) >> (32 - BITS) : (i32)bits;
  return (u32)(smaller(larger(value, range.low), range.high) - range.low);
}
#endif

// Reads the bits of one sample; rows are aligned to bytes only.
INLINE u32 sample(const u8* row, u32 channel) {
  if constexpr (BITS < 8) return (u32)(__ldg(row + channel * BITS / 8) >> (channel * BITS % 8)) & MASK;
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < BITS / 8; i++) bits |= (u32)__ldg(row + (u64)channel * (BITS / 8) + i) << (8 * i);
  return bits;
}

// Reads the bits of four adjacent channels, the first a multiple of 4; samples of 8 bits and more are aligned.
INLINE void four_samples(const u8* row, u32 channel, u32 (&bits)[4]) {
  if constexpr (BITS < 8) {
    u32 all = __ldg(row + channel * BITS / 8);
    if constexpr (BITS == 4) all |= (u32)__ldg(row + channel / 2 + 1) << 8;
    all >>= channel * BITS % 8;
#pragma unroll
    for (int i = 0; i < 4; i++) bits[i] = all >> (i * BITS) & MASK;
  } else if constexpr (BITS == 8) {
    const u32 all = __ldg((const u32*)(row + channel));
#pragma unroll
    for (int i = 0; i < 4; i++) bits[i] = all >> (8 * i) & 0xff;
  } else if constexpr (BITS == 16) {
    const uint2 all = __ldg((const uint2*)(row + 2 * (u64)channel));
    bits[0] = all.x & 0xffff, bits[1] = all.x >> 16, bits[2] = all.y & 0xffff, bits[3] = all.y >> 16;
  } else {
    const uint4 all = __ldg((const uint4*)(row + 4 * (u64)channel));
    bits[0] = all.x, bits[1] = all.y, bits[2] = all.z, bits[3] = all.w;
  }
}

INLINE void samples(const u8* row, const u32 (&channel)[4], bool adjacent, u32 (&bits)[4]) {
  if (adjacent) return four_samples(row, channel[0], bits);
#pragma unroll
  for (int c = 0; c < 4; c++) bits[c] = sample(row, channel[c]);
}

// Corner turn. input[row] has `row_bytes` bytes; the first `open` rows of the first sum came earlier, and the history
// holds their partial sum. history[k][time], rows `pitch` elements apart, gets sums from element `first` on, for each
// of the `count` channels[k].
KERNEL __launch_bounds__(THREADS, 2)
    turn(const u8* input, i64 row_bytes, i64 rows, Element* history, i64 pitch, i64 first, const u32* channels, i32 count, i32 downsample,
         i32 open, i32 low, i32 high, i32 aligned) {
  __shared__ Quad tile[CHANNELS][QUADS + 1];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first_channel = blockIdx.y * CHANNELS;
  const Range range = {low, high};
  // Times count from element `first`; the block starts on a multiple of 4 elements.
  const i64 start = (i64)blockIdx.x * TIMES - (first & 3), sums = (open + rows + downsample - 1) / downsample;

  u32 channel[4];
#pragma unroll
  for (int c = 0; c < 4; c++) channel[c] = __ldg(channels + smaller(first_channel + lane * 4 + c, count - 1));
  const bool adjacent = aligned && channel[0] % 4 == 0 && channel[3] == channel[0] + 3 && channel[2] == channel[0] + 2 &&
                        channel[1] == channel[0] + 1;

  for (int quad = warp; quad < QUADS; quad += THREADS / 32) {
    Value sum[4][4];  // channel, time
    const i64 time = start + quad * 4;
    if (adjacent && downsample == 1 && time >= 0 && time + 4 <= rows) {
      u32 bits[4][4];  // time, channel: all loads are in flight at once
#pragma unroll
      for (int t = 0; t < 4; t++) four_samples(input + (time + t) * row_bytes, channel[0], bits[t]);
#pragma unroll
      for (int c = 0; c < 4; c++)
#pragma unroll
        for (int t = 0; t < 4; t++) sum[c][t] = valued(bits[t][c], range);
    } else {
#pragma unroll
      for (int t = 0; t < 4; t++) {
        const bool is_open = time + t == 0 && open > 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
          const i64 k = smaller(first_channel + lane * 4 + c, count - 1);
          sum[c][t] = is_open ? (Value)history[k * pitch + first] : (Value)0;
        }
        const i64 end = smaller((time + t + 1) * downsample - open, rows);
        for (i64 row = larger((time + t) * downsample - open, (i64)0); row < end; row++) {
          u32 bits[4];
          samples(input + row * row_bytes, channel, adjacent, bits);
#pragma unroll
          for (int c = 0; c < 4; c++) sum[c][t] += valued(bits[c], range);
        }
      }
    }
    // Channel 4 lane + c occupies row 32 c + lane, so that the lanes write to different banks.
#pragma unroll
    for (int c = 0; c < 4; c++) tile[32 * c + lane][quad] = packed(sum[c], Quad());
  }
  __syncthreads();
  for (int i = threadIdx.x; i < CHANNELS * QUADS; i += THREADS) {
    const int k = i / QUADS, quad = i % QUADS;
    const i64 time = start + quad * 4;
    if (first_channel + k >= count || time >= sums || time <= -4) continue;
    const Quad four = tile[32 * (k & 3) + (k >> 2)][quad];
    Element* to = history + (i64)(first_channel + k) * pitch + first + time;
    if (time >= 0 && time + 4 <= sums) {
      *(Quad*)to = four;
    } else {
      for (int t = 0; t < 4; t++)
        if (time + t >= 0 && time + t < sums) to[t] = ((const Element*)&tile[32 * (k & 3) + (k >> 2)][quad])[t];
    }
  }
}

// Moves `bytes` bytes of each row (one block per row) `by` bytes towards its start; addresses, `by` and `bytes` are
// multiples of 16.
KERNEL __launch_bounds__(THREADS) move_rows(u8* history, i64 pitch_bytes, i64 by, i64 bytes) {
  u8* row = history + (i64)blockIdx.x * pitch_bytes;
  for (i64 start = 0; start < bytes; start += THREADS * 16) {
    const i64 at = start + threadIdx.x * 16;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (at < bytes) value = *(const uint4*)(row + by + at);
    __syncthreads();
    if (at < bytes) *(uint4*)(row + at) = value;
    __syncthreads();
  }
}

// Clears the sums that need a sample at or past `available`: those of trial d from available - shifts[d] on.
KERNEL __launch_bounds__(THREADS) clear_past(u32* output, i64 stride, const u32* shifts, i64 available, i64 times) {
  u32* row = output + (i64)blockIdx.x * stride;
  const i64 end = larger(available - (i64)__ldg(shifts + blockIdx.x), (i64)0);
  for (i64 time = end + (i64)blockIdx.y * THREADS + threadIdx.x; time < times; time += (i64)gridDim.y * THREADS) row[time] = 0;
}
