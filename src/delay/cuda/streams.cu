// Delay correction and corner turn of channelized voltages: axes antenna, recorded channel, polarization, time ->
// channel, input, time. ENCODING, BITS, POLARIZATIONS; TURNS: 1 with delays.
//
// A warp processes 32 chunks of an antenna's times, one per lane, in 8 recorded channels. It accesses rows of at
// least 256 bytes and keeps delays in registers. No shared memory.
#include "sample.cuh"

constexpr u32 CHUNK = BITS == 32 ? 2 : 8, COARSE = 8, WARPS = 4;

#define COMPLEX_4 0
#define COMPLEX_8 1
#define COMPLEX_OFFSET_8 2
#define COMPLEX_16 3
#define COMPLEX_F32 4

#if ENCODING == COMPLEX_4
typedef u8 Recorded;
INLINE float2 value_of(u8 byte) { return make_float2((float)((i32)(i8)byte >> 4), (float)((i32)((u32)byte << 28) >> 28)); }
#elif ENCODING == COMPLEX_8
typedef u16 Recorded;
INLINE float2 value_of(u16 pair) { return make_float2((float)(i8)pair, (float)(i8)(pair >> 8)); }
#elif ENCODING == COMPLEX_OFFSET_8
typedef u16 Recorded;
INLINE float2 value_of(u16 pair) { return make_float2((float)(pair & 255) - 128.f, (float)(pair >> 8) - 128.f); }
#elif ENCODING == COMPLEX_16
typedef u32 Recorded;
INLINE float2 value_of(u32 pair) { return make_float2((float)(i16)pair, (float)(i16)(pair >> 16)); }
#else
typedef float2 Recorded;
INLINE float2 value_of(float2 pair) { return pair; }
#endif

// Samples of a chunk, as recorded or as written.
template <class T, u32 COUNT> struct __align__(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Chunk {
  T values[COUNT];
};
constexpr u32 WORDS = CHUNK / GROUP;

KERNEL __launch_bounds__(128)
    turn_streams(const u8* voltages, u64 stride, u32 count, u32 coarse_channels, float scale, const Delay* delays,
                 u64 delay_stride, const double* zeros, double first_hz, double step_hz, const float2* gains,
                 const u32* inputs, u8* to, u64 channel_stride, u64 input_stride, u64* saturated) {
  const u32 start = (blockIdx.x * 32 + threadIdx.x % 32) * CHUNK, antenna = blockIdx.z, input = inputs[antenna];
  const u32 first = (blockIdx.y * WARPS + threadIdx.x / 32) * COARSE, end = smaller(first + COARSE, coarse_channels);
  const Natural natural = {to, channel_stride, input_stride};
  u32 counts[POLARIZATIONS] = {};
  if (start < count) {
#if TURNS
    const Band band = {zeros, first_hz, step_hz};
    Delay own[CHUNK];
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++)
      own[i] = delays[antenna * delay_stride + smaller(start + i, count - 1)];
#endif
#pragma unroll 1
    for (u32 coarse = first; coarse < end; coarse++) {
      Chunk<Recorded, CHUNK> from[POLARIZATIONS];
      float2 weights[POLARIZATIONS];
#pragma unroll
      for (u32 p = 0; p < POLARIZATIONS; p++) {
        const u64 stream = ((u64)antenna * coarse_channels + coarse) * POLARIZATIONS + p;
        from[p] = ((const Chunk<Recorded, CHUNK>*)(voltages + stream * stride))[start / CHUNK];
        const float2 gain = __ldg(gains + (u64)(antenna * POLARIZATIONS + p) * coarse_channels + coarse);
        weights[p] = make_float2(gain.x * scale, gain.y * scale);
      }
      Chunk<Word, WORDS> words[POLARIZATIONS];
#pragma unroll
      for (u32 i = 0; i < CHUNK; i++) {
#if TURNS
        float unit;
        const u32 phase = short_fraction(start_of(own[i], band, coarse), unit);
        const float2 turned = phasor(phase, unit);
#endif
#pragma unroll
        for (u32 p = 0; p < POLARIZATIONS; p++) {
          const float2 value = start + i < count ? value_of(from[p].values[i]) : make_float2(0.f, 0.f);
#if TURNS
          const float2 factor = multiplied(turned, weights[p]);
#else
          const float2 factor = weights[p];
#endif
          if (i % GROUP == 0) words[p].values[i / GROUP] = nothing();
          put(words[p].values[i / GROUP], rounded(multiplied(value, factor), counts[p]), i % GROUP);
        }
      }
#pragma unroll
      for (u32 p = 0; p < POLARIZATIONS; p++)
        ((Chunk<Word, WORDS>*)natural.row(coarse, input + p))[start / CHUNK] = words[p];
    }
  }
  if (BITS < 32) {
#pragma unroll
    for (u32 p = 0; p < POLARIZATIONS; p++) add_count(saturated + input + p, counts[p]);
  }
}
