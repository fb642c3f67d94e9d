// Robust first guess of a window's noise: median and scaled median absolute deviation of a few samples spread over
// the window. One warp holds the samples in registers.
#pragma once
#include "noise.cuh"

const u32 MOST_GUESSES = 512;

// Returns the number of samples used for the guess, for a window of `valid` samples.
INLINE u32 guesses(u32 valid) {
  return smaller(smaller(larger(valid / 32, MOST_GUESSES / 8), MOST_GUESSES), valid);
}

// Maps samples to unsigned keys of the same order.
INLINE u32 key_of(Sample y) {
#if FLOATS
  u32 bits = __float_as_uint(y);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
#else
  return (u32)y ^ 0x80000000;
#endif
}
INLINE Sample sample_of(u32 key) {
#if FLOATS
  return __uint_as_float(key & 0x80000000 ? key ^ 0x80000000 : ~key);
#else
  return (i32)(key ^ 0x80000000);
#endif
}

template <class Key> INLINE Key warp_largest(Key value) {
  for (i32 lanes = 16; lanes > 0; lanes /= 2) value = larger(value, __shfl_xor_sync(0xffffffff, value, lanes));
  return value;
}
template <class Key> INLINE Key warp_smallest(Key value) {
  for (i32 lanes = 16; lanes > 0; lanes /= 2) value = smaller(value, __shfl_xor_sync(0xffffffff, value, lanes));
  return value;
}

// Counts the warp's keys that are at most `limit`.
template <class Key, u32 KEYS> INLINE u32 count_up_to(const Key (&keys)[KEYS], Key limit) {
  u32 count = 0;
  for (u32 i = 0; i < KEYS; i++) count += keys[i] <= limit;
  return __reduce_add_sync(0xffffffff, count);
}

// Returns the warp's largest key below `limit`.
template <class Key, u32 KEYS> INLINE Key largest_below(const Key (&keys)[KEYS], Key limit) {
  Key best = 0;
  for (u32 i = 0; i < KEYS; i++)
    if (keys[i] < limit) best = larger(best, keys[i]);
  return warp_largest(best);
}

// Finds the two middle keys of `count` by bisection from `low` to `high`; an odd count has one middle key, returned
// twice. Missing keys have the largest value.
template <class Key, u32 KEYS>
INLINE void middle(const Key (&keys)[KEYS], u32 count, Key low, Key high, Key& lower, Key& upper) {
  while (low < high) {
    Key between = low + (high - low) / 2;
    if (count_up_to(keys, between) > count / 2)
      high = between;
    else
      low = between + 1;
  }
  lower = upper = low;
  if (count % 2 == 0 && low > 0 && count_up_to(keys, (Key)(low - 1)) == count / 2) lower = largest_below(keys, low);
}

INLINE u64 bits_of(double x) {
  union {
    double number;
    u64 bits;
  } both;
  both.number = x;
  return both.bits;
}
INLINE double number_of(u64 bits) {
  union {
    double number;
    u64 bits;
  } both;
  both.bits = bits;
  return both.number;
}

// Returns the median and scaled median absolute deviation of the `count` keys, the largest of which is `most`. A
// distance is a float's absolute deviation, or twice an integer's.
template <class Distance, u32 KEYS> INLINE Noise guess_of(const u32 (&keys)[KEYS], u32 count, u32 most) {
  const double SIGMA_PER_MAD = 1.482602218505602;
  u32 lane = threadIdx.x % 32, least = 0xffffffff, lower, upper;
  for (u32 i = 0; i < KEYS; i++) least = smaller(least, keys[i]);
  middle(keys, count, warp_smallest(least), most, lower, upper);
  double low = (double)sample_of(lower), high = (double)sample_of(upper);
  double centre = count % 2 ? high : product(0.5, low + high);
  Distance distances[KEYS], farthest = 0;
  for (u32 i = 0; i < KEYS; i++) {
    bool is_there = keys[i] != 0xffffffff || i * 32 + lane < count;
#if FLOATS
    // Non-negative doubles have the same order as their bits.
    Distance distance = bits_of(size_of((double)sample_of(keys[i]) - centre));
#else
    // Twice the deviation, which is an integer: the median of an even count may be a half.
    i64 twice = 2 * (i64)sample_of(keys[i]) - (i64)(centre * 2.0);
    Distance distance = (Distance)(twice < 0 ? -twice : twice);
#endif
    distances[i] = is_there ? distance : ~(Distance)0;
    if (is_there) farthest = larger(farthest, distance);
  }
  Distance near, far;
  middle(distances, count, (Distance)0, warp_largest(farthest), near, far);
#if FLOATS
  double below = number_of(near), above = number_of(far);
#else
  double below = 0.5 * (double)near, above = 0.5 * (double)far;
#endif
  return Noise{centre, product(SIGMA_PER_MAD, count % 2 ? above : product(0.5, below + above))};
}
