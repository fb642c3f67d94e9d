// Delay correction of one sample: phase rotation, gain, rounding.
// Phases are 64-bit fractions of a turn. Their sums and integer multiples wrap modulo one turn and are exact.
#pragma once
#include "device.cuh"

// BITS: of a real number in the output, 4, 8 or 32. A thread writes one Word of GROUP samples at once.
#if BITS == 32
typedef float2 Sample;
typedef float2 Word;
constexpr u32 GROUP = 1;
#else
typedef u32 Sample;
typedef u32 Word;
constexpr u32 GROUP = 16 / BITS;
#endif
constexpr u32 SAMPLE_BYTES = sizeof(Word) / GROUP;

// Delay of the wave, and its remainder after the correction by whole samples, in seconds.
struct Delay {
  double total, residual;
};

// Conversion of delays to turns, in Hz: sky frequency of each recorded channel's zero frequency; voltage frequency of
// the first channel, and channel spacing.
struct Band {
  const double* zeros;
  double first, step;
};

// Phase of channel k is start + k step; `unit` is 2^-30, or NaN if the phase is not finite.
struct Slope {
  u64 start, step;
  float unit;
};

constexpr float UNIT = 9.313225746154785e-10f;
INLINE float unknown() { return __uint_as_float(0x7FC00000u); }

// Rounds each product separately, as on the host.
INLINE double start_of(const Delay& delay, const Band& band, u32 coarse) {
  return product(__ldg(band.zeros + coarse), delay.total) + product(band.first, delay.residual);
}
INLINE u64 fraction(double turns) { return (u64)(i64)((turns - trunc(turns)) * 9223372036854775808.) << 1; }

INLINE Slope slope(const Delay& delay, const Band& band, u32 coarse) {
  const double start = start_of(delay, band, coarse), step = product(band.step, delay.residual);
  const bool is_known = start - start == 0. && step - step == 0.;
  return is_known ? Slope{fraction(start), fraction(step), UNIT} : Slope{0, 0, unknown()};
}

// Returns the top 32 bits of the fraction of `turns`: the lowest bits of a double between 2^20 and 2^21 have the weight
// 2^-32.
INLINE u32 short_fraction(double turns, float& unit) {
  if (!(fabs(turns) < 1e15)) {
    unit = turns - turns == 0. ? UNIT : unknown();
    return (u32)(fraction(turns - turns == 0. ? turns : 0.) >> 32);
  }
  constexpr double ROUND = 6755399441055744.;
  unit = UNIT;
  return (u32)__double2loint(turns - ((turns + ROUND) - ROUND) + 1572864.);
}

// Returns cosine and sine within 2^-23: polynomials over a quarter of a turn, centred on angle zero.
INLINE float2 phasor(u32 top, float unit) {
  const u32 quarter = (top + 0x20000000u) >> 30;
  const float x = (float)(i32)(top - (quarter << 30)) * unit, z = x * x;
  const float cosine = fmaf(fmaf(fmaf(fmaf(9.067399e-4f, z, -0.020861529f), z, 0.2536694f), z, -1.2337005f), z, 1.f);
  const float sine = x * fmaf(fmaf(fmaf(-4.602149e-3f, z, 0.07968022f), z, -0.6459635f), z, 1.5707964f);
  const bool is_odd = quarter & 1;
  const u32 re = __float_as_uint(is_odd ? sine : cosine), im = __float_as_uint(is_odd ? cosine : sine);
  return make_float2(__uint_as_float(re ^ ((quarter + 1) & 2) << 30), __uint_as_float(im ^ (quarter & 2) << 30));
}

INLINE float2 multiplied(float2 a, float2 b) { return make_float2(fmaf(-a.y, b.y, a.x * b.x), fmaf(a.y, b.x, a.x * b.y)); }

INLINE bool is_finite(float2 value) { return fabsf(value.x) <= 3.4028235e38f && fabsf(value.y) <= 3.4028235e38f; }

#if BITS == 32
INLINE Sample rounded(float2 value, u32&) { return is_finite(value) ? value : make_float2(0.f, 0.f); }
INLINE void put(Word& word, Sample sample, u32) { word = sample; }
INLINE Word nothing() { return make_float2(0.f, 0.f); }
#else
constexpr float MOST = (1 << (BITS - 1)) - 1;

// Returns whether a value rounds to an integer out of range. The tie at the upper end rounds to even, out of range; the
// tie at the lower end rounds to the least integer.
INLINE bool is_beyond(float part) { return !(part >= -MOST - 1.5f && part < MOST + 0.5f); }

// Clips a value that may be outside the integer range; 0 if it is not finite.
INLINE float2 saturate(float2 value, u32& count) {
  if (!is_finite(value)) return make_float2(0.f, 0.f);
  count += is_beyond(value.x) || is_beyond(value.y);
  return make_float2(fminf(fmaxf(value.x, -MOST - 1.f), MOST), fminf(fmaxf(value.y, -MOST - 1.f), MOST));
}

// 1.5 * 2^23: the lowest bits of a float of this size hold an integer, rounded to even.
constexpr float WHOLE = 12582912.f;

INLINE Sample rounded(float2 value, u32& count) {
#if BITS == 4
  // About one sample in a dozen is clipped, so clipping has no branch; only huge or non-finite values take one.
  if (fabsf(value.x) < 1e30f && fabsf(value.y) < 1e30f) {
    count += is_beyond(value.x) || is_beyond(value.y);
    value = make_float2(fminf(fmaxf(value.x, -MOST - 1.f), MOST), fminf(fmaxf(value.y, -MOST - 1.f), MOST));
  } else {
    value = saturate(value, count);
  }
#else
  if (!(fabsf(value.x) < MOST && fabsf(value.y) < MOST)) value = saturate(value, count);
#endif
  const u32 re = __float_as_uint(value.x + WHOLE), im = __float_as_uint(value.y + WHOLE);
  return BITS == 8 ? __byte_perm(re, im, 0x0040) & 0xFFFFu : (re & 15) << 4 | (im & 15);
}
INLINE void put(Word& word, Sample sample, u32 place) { word |= sample << 2 * BITS * place; }
INLINE Word nothing() { return 0; }
#endif

// Adds the counts of a warp to those of an input.
INLINE void add_count(u64* to, u32 count) {
#pragma unroll
  for (u32 step = 16; step > 0; step /= 2) count += __shfl_xor_sync(~0u, count, step);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(to, (u64)count);
}

// Output layout: axes channel, input, time.
struct Natural {
  u8* first;
  u64 channel_stride, input_stride;
  INLINE u8* row(u32 channel, u32 input) const { return first + channel * channel_stride + input * input_stride; }
};
