// Mean and deviation of every window: a robust guess, then moments of the samples within three deviations.
#include "guess.cuh"

// --- first guess, one warp per window
const u32 LANE_GUESSES = MOST_GUESSES / 32;

KERNEL __launch_bounds__(128) guess(SERIES_PARAMETERS, const Noise* own, const Noise* carried, Estimate* estimates,
                                    u32* list, u32* active, u32* spoilt, u32 dms) {
  Series series = SERIES;
  u32 index = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (index >= dms * windows) return;
  u32 dm = index / windows, j = index % windows, valid = series.samples(dm, j);
  if (series.statistics(dm, j) != OWN) return;
  u32 tries = guesses(valid), step = valid / tries, keys[LANE_GUESSES], count = 0, most = 0;
  for (u32 k = 0; k < LANE_GUESSES; k++) {
    u32 i = k * 32 + lane;
    keys[k] = 0xffffffff;
    if (i >= tries) continue;
    u32 x = i * step + (i * 37) % step;
    Sample y = series.at(dm, (u64)j * window + x);
#if FLOATS
    if (!is_finite(y)) {
      if (series.is_first(j) || x >= reach) continue;
      // The previous window's mean is unknown yet: reports that the windows must be processed one after another.
      if (j > 0) *spoilt = 1;
      y = j > 0 ? 0.0f : (float)carried[dm].mean;
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
    Noise first = guess_of<u64>(keys, count, most);
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

// --- one step of every listed window: updates its estimate and lists it again if it needs another pass
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

// --- final noise of the batch's windows, and the last one's for the next batch
KERNEL __launch_bounds__(128) settle(SERIES_PARAMETERS, Noise* own, const Estimate* estimates, u32* loud, u32 dms) {
  Series series = SERIES;
  u32 index = blockIdx.x * 128 + threadIdx.x;
  if (index >= dms * windows) return;
  bool has_own = series.statistics(index / windows, index % windows) == OWN;
  loud[index] = 0;
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
