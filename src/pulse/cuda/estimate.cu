// Mean and deviation of short windows of integers: a warp for each, from the guess to the last pass, so that nothing but
// samples is read and nothing but the noise is written.
#include "guess.cuh"
#include "totals.cuh"

// The guess of a window, the same in all lanes, from KEYS of its samples a lane.
template <u32 KEYS> INLINE Estimate first_estimate(const Series& series, u32 dm, u32 j, u32 valid) {
  u32 tries = guesses(valid), step = valid / tries, keys[KEYS], most = 0;
  for (u32 k = 0; k < KEYS; k++) {
    u32 i = k * 32 + threadIdx.x % 32;
    keys[k] = 0xffffffff;
    if (i >= tries) continue;
    keys[k] = key_of(series.at(dm, (u64)j * series.window + i * step + (i * 37) % step));
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

// A lane keeps the estimate of one of the warp's `group` windows, whose samples all lanes sum together; all lanes then take
// their windows' next step at once.
KERNEL __launch_bounds__(128) estimate(SERIES_PARAMETERS, Noise* own, u32 group, u32 dms) {
  Series series = SERIES;
  u32 lane = threadIdx.x % 32, all = dms * windows, base = (blockIdx.x * 4 + threadIdx.x / 32) * group;
  Estimate mine = {};
  bool goes_on = false;
  for (u32 k = 0; k < group && base + k < all; k++) {
    u32 dm = (base + k) / windows, j = (base + k) % windows, valid = series.samples(dm, j);
    if (series.statistics(dm, j) != OWN) continue;
    u32 tries = guesses(valid);
    Estimate guess = tries <= 64    ? first_estimate<2>(series, dm, j, valid)
                     : tries <= 128 ? first_estimate<4>(series, dm, j, valid)
                                    : first_estimate<8>(series, dm, j, valid);
    if (lane == k) mine = guess, goes_on = true;
  }
  for (u32 left = __ballot_sync(0xffffffff, goes_on); left != 0; left = __ballot_sync(0xffffffff, goes_on)) {
    for (; left != 0; left &= left - 1) {
      u32 k = __ffs((i32)left) - 1;
      Estimate clipped = {};
      clipped.centre = __shfl_sync(0xffffffff, mine.centre, k);
      clipped.limit = __shfl_sync(0xffffffff, mine.limit, k);
      clipped.pass = __shfl_sync(0xffffffff, mine.pass, k);
      Totals totals = totals_of<32>(series, (base + k) / windows, (base + k) % windows, clipped);
      totals.join();
      if (lane != k) continue;
      mine.count = (double)totals.count;
      mine.sum = (double)totals.sum;
      mine.squares = totals.squares();
    }
    if (goes_on) goes_on = advance(mine);
  }
  if (lane < group && base + lane < all) own[base + lane] = Noise{mine.mean, mine.sigma};
}
