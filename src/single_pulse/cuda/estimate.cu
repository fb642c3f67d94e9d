// Mean and deviation of short integer windows. One warp per window does everything from the guess to the last pass,
// so that it reads only samples and writes only the noise.
#include "guess.cuh"
#include "totals.cuh"

// Returns the guess from KEYS samples per lane; all lanes get the same result.
template <u32 KEYS> INLINE Estimate first_estimate(const Row& row, u32 tries, u32 step) {
  u32 keys[KEYS], most = 0, last = step - 1;
  // The step of a full window is a power of two, which avoids the division.
  bool is_power = (step & last) == 0;
  for (u32 k = 0; k < KEYS; k++) {
    u32 i = k * 32 + threadIdx.x % 32;
    keys[k] = 0xffffffff;
    if (i >= tries) continue;
    keys[k] = key_of(row.at(i * step + (is_power ? i * 37 & last : i * 37 % step)));
    most = larger(most, keys[k]);
  }
  Noise guess = guess_of<u32>(keys, tries, warp_largest(most));
  Estimate estimate = {};
  estimate.mean = guess.mean;
  estimate.sigma = guess.sigma;
  estimate.pass = guess.sigma == 0.0 ? -1 : 0;
  clip(estimate);
  if (estimate.pass < 0) estimate.centre = rounded(guess.mean);
  return estimate;
}

// Computes the moments of a window in all lanes; the lane with `keeps` stores them.
INLINE void take_moments(const Row& row, u32 valid, const Estimate& clip, Estimate& mine, bool keeps) {
  Totals totals = totals_of<32>(row, valid, clip);
  totals.join();
  if (!keeps) return;
  mine.count = (double)totals.count;
  mine.sum = (double)totals.sum;
  mine.squares = totals.squares();
}

// Each lane owns the estimate of one of the warp's `group` windows. All lanes sum the samples of a window together;
// the lanes then advance their estimates in parallel.
KERNEL __launch_bounds__(128, 6) estimate(SERIES_PARAMETERS, Noise* own, u32 group, u32 dms) {
  Series series = SERIES;
  u32 lane = threadIdx.x % 32, all = dms * windows, base = (blockIdx.x * 4 + threadIdx.x / 32) * group;
  u32 dm = base / windows, j = base % windows;
  Estimate mine = {};
  bool goes_on = false;
  for (u32 k = 0; k < group && base + k < all; k++) {
    u32 valid = series.samples(dm, j), tries = guesses(valid);
    if (series.statistics(dm, j) == OWN) {
      Row row = series.row(dm, j);
      Estimate guess = tries <= 64    ? first_estimate<2>(row, tries, valid / tries)
                       : tries <= 128 ? first_estimate<4>(row, tries, valid / tries)
                                      : first_estimate<8>(row, tries, valid / tries);
      if (lane == k) mine = guess, goes_on = true;
    }
    if (++j == windows) dm++, j = 0;
  }
  for (u32 left = __ballot_sync(0xffffffff, goes_on); left != 0; left = __ballot_sync(0xffffffff, goes_on)) {
    for (; left != 0; left &= left - 1) {
      u32 k = __ffs((i32)left) - 1;
      dm = (base + k) / windows, j = (base + k) % windows;
      Estimate next = {};
      next.centre = __shfl_sync(0xffffffff, mine.centre, k);
      next.limit = __shfl_sync(0xffffffff, mine.limit, k);
      next.pass = __shfl_sync(0xffffffff, mine.pass, k);
      take_moments(series.row(dm, j), series.samples(dm, j), next, mine, lane == k);
    }
    if (goes_on) goes_on = advance(mine);
  }
  if (lane < group && base + lane < all) own[base + lane] = Noise{mine.mean, mine.sigma};
}
