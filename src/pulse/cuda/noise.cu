// Mean and deviation of every window: a robust guess, then moments of what lies within three deviations.
#include "noise.cuh"

// --- the guess, a warp for each window, from a few samples that are spread over it
const u32 MOST_GUESSES = 512;
const u32 LANE_GUESSES = MOST_GUESSES / 32;

// Unsigned numbers that are ordered as samples are.
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

// Keys of the warp that are at most `limit`.
template <class Key> INLINE u32 count_up_to(const Key (&keys)[LANE_GUESSES], Key limit) {
  u32 count = 0;
  for (u32 i = 0; i < LANE_GUESSES; i++) count += keys[i] <= limit;
  return __reduce_add_sync(0xffffffff, count);
}

// The largest key of the warp below `limit`.
template <class Key> INLINE Key largest_below(const Key (&keys)[LANE_GUESSES], Key limit) {
  Key best = 0;
  for (u32 i = 0; i < LANE_GUESSES; i++)
    if (keys[i] < limit) best = larger(best, keys[i]);
  return warp_largest(best);
}

// The two middle keys of `count`, which are the same one if that is odd. Keys that are not there are the largest.
template <class Key> INLINE void middle(const Key (&keys)[LANE_GUESSES], u32 count, Key most, Key& lower, Key& upper) {
  Key low = 0, high = most;
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

// Median and scaled median deviation of the keys.
INLINE Noise guess_of(const u32 (&keys)[LANE_GUESSES], u32 count, u32 most) {
  const double SIGMA_PER_MAD = 1.482602218505602;
  u32 lane = threadIdx.x % 32, lower, upper;
  middle(keys, count, most, lower, upper);
  double low = (double)sample_of(lower), high = (double)sample_of(upper);
  double centre = count % 2 ? high : product(0.5, low + high);
  u64 distances[LANE_GUESSES], farthest = 0;
  for (u32 i = 0; i < LANE_GUESSES; i++) {
    bool is_there = keys[i] != 0xffffffff || i * 32 + lane < count;
#if FLOATS
    // Doubles that are not negative are ordered as their bits are.
    u64 distance = bits_of(size_of((double)sample_of(keys[i]) - centre));
#else
    // Halves of counts.
    i64 twice = 2 * (i64)sample_of(keys[i]) - (i64)(centre * 2.0);
    u64 distance = (u64)(twice < 0 ? -twice : twice);
#endif
    distances[i] = is_there ? distance : ~0ull;
    if (is_there) farthest = larger(farthest, distance);
  }
  u64 near, far;
  middle(distances, count, warp_largest(farthest), near, far);
#if FLOATS
  double below = number_of(near), above = number_of(far);
#else
  double below = 0.5 * (double)near, above = 0.5 * (double)far;
#endif
  return Noise{centre, product(SIGMA_PER_MAD, count % 2 ? above : product(0.5, below + above))};
}

KERNEL __launch_bounds__(128) guess(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Estimate* estimates,
                                    u32* list, u32* active, u32 dms) {
  Series series = SERIES;
  u32 index = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= dms * windows) return;
  u32 dm = index / windows, j = index % windows, valid = series.samples(dm, j);
  if (series.statistics(dm, j) != OWN) return;
  u32 tries = smaller(larger(valid / 32, MOST_GUESSES / 8), MOST_GUESSES);
  tries = smaller(tries, valid);
  u32 step = valid / tries, keys[LANE_GUESSES], count = 0, most = 0;
  for (u32 k = 0; k < LANE_GUESSES; k++) {
    u32 i = k * 32 + lane;
    keys[k] = 0xffffffff;
    if (i >= tries) continue;
    u32 x = i * step + (i * 37) % step;
    Sample y = series.at(dm, (u64)j * window + x);
#if FLOATS
    if (!is_finite(y)) {
      if (series.is_first(j) || x >= reach) continue;
      y = (float)(j > 0 ? own[index - 1].mean : carried[dm].mean);
    }
#endif
    keys[k] = key_of(y);
    most = larger(most, keys[k]);
    count++;
  }
  count = __reduce_add_sync(0xffffffff, count);
  most = warp_largest(most);
  Estimate estimate = {};
  if (count > 0) {
    Noise first = guess_of(keys, count, most);
    estimate.mean = first.mean;
    estimate.sigma = first.sigma;
    estimate.pass = first.sigma == 0.0 ? -1 : 0;
    clip(estimate);
    if (estimate.pass < 0) estimate.centre = rounded(first.mean);
  }
  if (lane > 0) return;
  estimates[index] = estimate;
  if (count > 0) list[atomicAdd(active, 1u)] = index;
}

// --- a step of every window that needs one: its new estimate, and whether another pass is needed
KERNEL __launch_bounds__(64) refine(Estimate* estimates, const u32* list, const u32* active, u32* next_list,
                                    u32* next_active) {
  for (u32 i = blockIdx.x * 64 + threadIdx.x; i < *active; i += gridDim.x * 64) {
    u32 index = list[i];
    Estimate estimate = estimates[index];
    bool goes_on = advance(estimate);
    estimates[index] = estimate;
    if (goes_on) next_list[atomicAdd(next_active, 1u)] = index;
  }
}

// --- the noise of the batch's windows, and of the last that had its own: what the next batch may need
KERNEL __launch_bounds__(128) settle(SERIES_PARAMETERS, Noise* own, const Estimate* estimates, u32 dms) {
  Series series = SERIES;
  u32 index = blockIdx.x * 128 + threadIdx.x;
  if (index >= dms * windows) return;
  bool has_own = series.statistics(index / windows, index % windows) == OWN;
  own[index] = has_own ? Noise{estimates[index].mean, estimates[index].sigma} : Noise{0.0, 0.0};
}
KERNEL __launch_bounds__(128) carry(SERIES_PARAMETERS, const Noise* own, Noise* carried, u32 dms) {
  Series series = SERIES;
  u32 dm = blockIdx.x * 128 + threadIdx.x;
  if (dm >= dms) return;
  for (u32 j = windows; j-- > 0;) {
    Statistics which = series.statistics(dm, j);
    if (which != OWN && which != NONE) continue;
    carried[dm] = which == OWN ? own[dm * windows + j] : Noise{0.0, 0.0};
    return;
  }
}
