// Windowed sums (FIR) for any plan: y[n mod N] = sum over t of x[n + t N] b[n - start + t N], n = start + c.
#include "voltage.cuh"

// Spectra per thread; each sample is read once for all of them.
constexpr u32 SPECTRA = 8;

INLINE void add(Complex& sum, const Complex& x, float b) {
  sum.re = fmaf(x.re, b, sum.re);
  sum.im = fmaf(x.im, b, sum.im);
}
INLINE void add(Real& sum, const Real& x, float b) { sum.re = fmaf(x.re, b, sum.re); }

INLINE void store(float* to, u32 at, const Complex& sum, u32) { ((float2*)to)[at] = make_float2(sum.re, sum.im); }
// Stores a real sum, or a complex number with zero imaginary part if the sums are the output.
INLINE void store(float* to, u32 at, const Real& sum, u32 widens) {
  if (widens) {
    ((float2*)to)[at] = make_float2(sum.re, 0.0f);
  } else {
    to[at] = sum.re;
  }
}

// Arguments of every launch. blockIdx.y is one stream, counted from the first polarization of `first_unit`; a unit is
// one antenna's recorded channel, in output order.
#define FIR_ARGUMENTS                                                                                          \
  const u8 *input, u64 stride, u64 first_sample, const float *coefficients, float *output, u64 spectrum_floats, \
      u64 antenna_floats, u64 place_floats, u64 polarization_floats, u32 points, u32 taps, u32 hop,             \
      u32 rotation, u32 spectra, u32 first_unit, u32 coarse_channels, u32 polarizations, u32 reverses, u32 widens

#define FIR_STREAM                                                                                             \
  const u32 polarization = blockIdx.y % polarizations;                                                         \
  const u32 unit = first_unit + blockIdx.y / polarizations;                                                    \
  const u32 antenna = unit / coarse_channels, place = unit % coarse_channels;                                  \
  const u32 coarse = reverses ? coarse_channels - 1 - place : place;                                           \
  const u64 stream = ((u64)antenna * coarse_channels + coarse) * polarizations + polarization;                 \
  const u8* row = input + stream * stride;                                                                     \
  float* to = output + antenna * antenna_floats + place * place_floats + polarization * polarization_floats;

// Windows one whole row apart: each thread sums SPECTRA spectra of one column, adding taps in order.
KERNEL __launch_bounds__(256, 2) fir(FIR_ARGUMENTS) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 first = index / points * SPECTRA, column = index % points;
  if (first >= spectra) return;
  FIR_STREAM
  const u32 live = smaller(SPECTRA, spectra - first);
  const u32 rows = taps + live - 1;
  const u64 at = first_sample + (u64)first * points + column;
  Sample sums[SPECTRA];
  // Entry r mod SPECTRA holds the coefficient of tap r.
  float b[SPECTRA];
#pragma unroll
  for (u32 k = 0; k < SPECTRA; ++k) sums[k] = {}, b[k] = 0.0f;
  for (u32 start = 0; start < rows; start += SPECTRA) {
    if (start >= SPECTRA && start + SPECTRA <= taps) {
      Sample x[SPECTRA];
#pragma unroll
      for (u32 j = 0; j < SPECTRA; ++j) x[j] = load(row, at + (u64)(start + j) * points);
#pragma unroll
      for (u32 j = 0; j < SPECTRA; ++j) {
        b[j] = coefficients[(u64)(start + j) * points + column];
#pragma unroll
        for (u32 k = 0; k < SPECTRA; ++k) add(sums[k], x[j], b[(j + SPECTRA - k) % SPECTRA]);
      }
    } else {
      // All loads are issued first so that their latencies overlap.
      Sample x[SPECTRA];
      float fresh[SPECTRA];
#pragma unroll
      for (u32 j = 0; j < SPECTRA; ++j) {
        const u32 r = start + j;
        x[j] = {}, fresh[j] = 0.0f;
        if (r < rows) x[j] = load(row, at + (u64)r * points);
        if (r < taps) fresh[j] = coefficients[(u64)r * points + column];
      }
#pragma unroll
      for (u32 j = 0; j < SPECTRA; ++j) {
        const u32 r = start + j;
        b[j] = fresh[j];
        // Row r is multiplied by tap r - k for spectrum k. Rows outside a spectrum's window must not enter its sum,
        // because they may not be finite.
#pragma unroll
        for (u32 k = 0; k < SPECTRA; ++k) {
          if (r >= k && r - k < taps) add(sums[k], x[j], b[(j + SPECTRA - k) % SPECTRA]);
        }
      }
    }
  }
#pragma unroll
  for (u32 k = 0; k < SPECTRA; ++k) {
    if (k < live) store(to + (first + k) * spectrum_floats, column, sums[k], widens);
  }
}

// Windows less than a row apart (oversampling): each thread computes one value of one spectrum.
KERNEL __launch_bounds__(256) fir_overlapping(FIR_ARGUMENTS) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  const u32 spectrum = index / points, place_in_row = index % points;
  if (spectrum >= spectra) return;
  FIR_STREAM
  const u32 turn = (u32)((rotation + (u64)spectrum * hop) % points);
  const u32 column = place_in_row >= turn ? place_in_row - turn : place_in_row + points - turn;
  const u64 at = first_sample + (u64)spectrum * hop + column;
  Sample sum = {};
#pragma unroll 4
  for (u32 t = 0; t < taps; ++t) {
    add(sum, load(row, at + (u64)t * points), coefficients[(u64)t * points + column]);
  }
  store(to + spectrum * spectrum_floats, place_in_row, sum, widens);
}
