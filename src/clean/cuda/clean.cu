// Subtracts from every row its mean over the good channels and fills its bad cells; one warp per row.
#include "samples.cuh"

// Rounds to the nearest integer, ties to even.
INLINE double even(double x) {
  const double SHIFT = 6755399441055744.0;
  // A negative number that rounds to zero keeps its sign.
  double size = x < 0.0 ? -x : x, whole = (size + SHIFT) - SHIFT;
  return !(size < 2251799813685248.0) ? x : x < 0.0 ? -whole : whole;
}

template <class T> INLINE T warp_total(T sum) {
  for (i32 lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lanes);
  return sum;
}

// Row with its bad cells filled.
struct Row {
  const u8* samples;
  const u32* bad;
  const float* fills;
  float fallback;

  INLINE Value at(u32 channel) const {
    if (!TIMES || !is_bad(bad, channel)) return value_of(samples, channel);
    return (Value)(is_finite(fills[channel]) ? fills[channel] : fallback);
  }
};

#if TIMES
// Returns the mean of the row's good cells, rounded to an integer: the fill for channels without a median yet.
INLINE float fallback_of(const Row& row, const u32* good, u32 channels) {
  u32 lane = threadIdx.x % 32;
  bool needed = false;
  for (u32 channel = lane; channel < channels; channel += 32)
    needed |= is_bad(row.bad, channel) && !is_finite(row.fills[channel]);
  if (!__any_sync(0xffffffff, needed)) return 0.0f;
#if FLOAT
  // Adds in channel order, as the host does.
  double sum = 0.0, count = 0.0;
  for (u32 channel = 0; channel < channels; channel++) {
    if (!good[channel] || is_bad(row.bad, channel)) continue;
    sum += (double)value_of(row.samples, channel);
    count += 1.0;
  }
#else
  i64 whole = 0, number = 0;
  for (u32 channel = lane; channel < channels; channel += 32) {
    bool counts = good[channel] && !is_bad(row.bad, channel);
    whole += counts ? value_of(row.samples, channel) : 0;
    number += counts;
  }
  double sum = (double)warp_total(whole), count = (double)warp_total(number);
#endif
  return count == 0.0 ? 0.0f : (float)even(sum / count);
}
#endif

#if ZERO_DM && FLOAT
const u32 LANES = 16;

// Returns the mean of the good channels' finite values: sixteen partial sums, in the host's order.
INLINE double mean_of(const Row& row, const u32* good, u32 channels, u32, i32) {
  double sum = 0.0, count = 0.0, total = 0.0, number = 0.0;
  u32 lane = threadIdx.x % 32;
  for (u32 channel = lane; lane < LANES && channel < channels; channel += LANES) {
    float x = row.at(channel);
    bool counts = good[channel] && is_finite(x);
    sum += counts ? (double)x : 0.0;
    count += counts ? 1.0 : 0.0;
  }
  for (u32 other = 0; other < LANES; other++) {
    total += __shfl_sync(0xffffffff, sum, other);
    number += __shfl_sync(0xffffffff, count, other);
  }
  return number == 0.0 ? 0.0 : total / number;
}
INLINE void put(u8* output, u32 channel, float x, double mean, i32) {
  ((float*)output)[channel] = (float)((double)x - mean);
}
#elif ZERO_DM
// Returns the scaled mean of the good channels, rounded to nearest, ties to even.
INLINE i32 mean_of(const Row& row, const u32* good, u32 channels, u32 good_channels, i32 scale) {
  i64 sum = 0;
  for (u32 channel = threadIdx.x % 32; channel < channels; channel += 32) sum += row.at(channel) & (i32)good[channel];
  sum = warp_total(sum) * scale;
  if (good_channels == 0) return 0;
  i64 count = good_channels, floor = sum / count, rest = sum - floor * count;
  if (rest < 0) floor--, rest += count;
  bool up = 2 * rest > count || (2 * rest == count && floor % 2 != 0);
  return (i32)(floor + up);
}
INLINE void put(u8* output, u32 channel, i32 x, i32 mean, i32 scale) {
  if constexpr (BITS == 16)
    ((float*)output)[channel] = (float)x - (float)mean;
  else
    ((i16*)output)[channel] = (i16)(scale * x - mean);
}
#else
// Packs the samples of one output byte, or one wider sample.
INLINE void pack(const Row& row, u8* output, u32 unit) {
  if constexpr (FLOAT) {
    ((float*)output)[unit] = (float)row.at(unit);
  } else if constexpr (BITS == 16) {
    ((u16*)output)[unit] = (u16)row.at(unit);
  } else {
    constexpr u32 WIDTH = BITS <= 8 ? BITS : 8, SAMPLES = 8 / WIDTH;
    u32 byte = 0;
    for (u32 k = 0; k < SAMPLES; k++) byte |= ((u32)row.at(unit * SAMPLES + k) & ((1u << WIDTH) - 1)) << (k * WIDTH);
    output[unit] = (u8)byte;
  }
}
#endif

KERNEL __launch_bounds__(256)
    clean(const u8* input, u8* output, u64 row_bytes, u64 output_bytes, const u32* good, u32 channels, u32 times,
          u32 good_channels, i32 scale, u64 time, MASK_PARAMETERS, const float* fills) {
  u32 index = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= times) return;
  Row row{input + index * row_bytes, nullptr, nullptr, 0.0f};
  u8* out = output + index * output_bytes;
#if TIMES
  Mask mask = MASK;
  row.bad = mask.at(time + index);
  row.fills = fills + (u64)index * channels;
  if (row.bad) row.fallback = fallback_of(row, good, channels);
#endif
#if ZERO_DM
  auto mean = mean_of(row, good, channels, good_channels, scale);
  for (u32 channel = lane; channel < channels; channel += 32)
    put(out, channel, row.at(channel), good[channel] ? mean : 0, scale);
#else
  u32 units = BITS < 8 ? channels * BITS / 8 : channels;
  for (u32 unit = lane; unit < units; unit += 32) pack(row, out, unit);
#endif
}
