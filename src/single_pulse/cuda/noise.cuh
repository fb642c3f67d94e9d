// State of a window's noise estimate.
#pragma once
#include "series.cuh"

// Current estimate, next clip, and moments of the samples within it.
struct Estimate {
  double mean, sigma;
  double centre, limit;
  double count, sum, squares;
  // Clipping passes done; -1 while all samples count.
  i32 pass, unused;
};

const i32 PASSES = 8;

INLINE void clip(Estimate& estimate) {
  double limit = product(3.0, estimate.sigma);
  estimate.centre = FLOATS ? estimate.mean : rounded(estimate.mean);
  estimate.limit = FLOATS ? limit : rounded(limit);
}

// Returns the variance of a unit Gaussian truncated at +-k; every product is rounded separately, as on the host.
INLINE double truncated_variance(double k) {
  if (k >= 9.0) return 1.0;
  double term = 1.0, sum = 1.0, odd = 1.0, square = product(k, k);
  while (term > product(1e-12, sum)) {
    odd += 2.0;
    term = product(term, square / odd);
    sum += term;
  }
  return 1.0 - 1.0 / sum;
}

INLINE double untruncated_sigma(double variance, double edge, bool is_cut) {
  double sigma = sqrt(variance);
  if (sigma == 0.0 || !is_cut) return sigma;
#pragma unroll 1
  for (i32 step = 0; step < 4; step++) {
    double next = sqrt(variance / truncated_variance(edge / sigma));
    sigma = next < edge ? next : edge;
  }
  return sigma;
}

INLINE Noise refined(const Estimate& estimate) {
  if (estimate.count == 0.0) return Noise{estimate.centre, 0.0};
  double shift = estimate.sum / estimate.count, square = estimate.squares / estimate.count;
  double variance = square - product(shift, shift);
  // The variance of equal samples is rounding error.
  if (!(variance > product(1e-9, square))) variance = 0.0;
  double edge = FLOATS ? estimate.limit : estimate.limit + 0.5;
  return Noise{estimate.centre + shift, untruncated_sigma(variance, edge, estimate.pass >= 0)};
}

INLINE double size_of(double x) { return x < 0.0 ? -x : x; }

// Updates the estimate from the moments; returns whether another pass is needed.
INLINE bool advance(Estimate& estimate) {
  Noise last{estimate.mean, estimate.sigma}, next = refined(estimate);
  i32 pass = estimate.pass++;
  estimate.mean = next.mean;
  estimate.sigma = next.sigma;
  if (next.sigma == 0.0 || pass == PASSES - 1) return false;
  bool moved = size_of(next.mean - last.mean) > product(0.02, last.sigma);
  bool changed = size_of(next.sigma - last.sigma) > product(0.01, last.sigma);
  if (pass > 0 && !moved && !changed) return false;
  clip(estimate);
  return true;
}
