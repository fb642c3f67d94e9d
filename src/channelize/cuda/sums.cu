// Windowed sums of complex samples for windows one row apart and rows of an even length; faster than fir.cu.
//   y_s[c] = sum_{t < TAPS} x[(s + t) points + c] b[t points + c]
// Each thread computes consecutive spectra of two neighbouring columns, so that each sample is decoded once for all
// spectra.
#include "fir.cuh"

constexpr bool HOLDS = TAPS <= MOST_HELD;

// blockIdx.x counts pairs of columns, y batches, z streams, counted from the first polarization of `first_unit`; a
// unit is one antenna's recorded channel, in output order.
#define PARAMETERS                                                                                                    \
  const u8 *input, u64 stride, const float2 *coefficients, float4 *output, u64 spectrum_pairs, u64 antenna_pairs,       \
      u64 place_pairs, u64 polarization_pairs, u32 words, u32 spectra, u32 first_unit, u32 coarse_channels,            \
      u32 polarizations, u32 reverses

template <int SPECTRA> INLINE void sum_pairs(PARAMETERS) {
  const u32 pair = blockIdx.x * THREADS + threadIdx.x;
  if (pair >= words) return;
  const u32 polarization = blockIdx.z % polarizations, unit = first_unit + blockIdx.z / polarizations;
  const u32 antenna = unit / coarse_channels, place = unit % coarse_channels;
  const u32 coarse = reverses ? coarse_channels - 1 - place : place;
  const u64 stream = ((u64)antenna * coarse_channels + coarse) * polarizations + polarization;
  // The last batch overlaps the one before it, so that every batch is full.
  const u32 first = smaller(blockIdx.y * SPECTRA, spectra - SPECTRA);
  const Word* row = (const Word*)(input + stream * stride) + (u64)first * words;
  float4* to = output + antenna * antenna_pairs + place * place_pairs + polarization * polarization_pairs +
               first * spectrum_pairs + pair;
  float4 sums[SPECTRA];
#pragma unroll
  for (int j = 0; j < SPECTRA; j++) sums[j] = make_float4(0.f, 0.f, 0.f, 0.f);
  const Column<0> column = {nullptr, row + pair, coefficients + pair, (int)words, (int)words, 0};
  if constexpr (SPECTRA == 1)
    filter_one(sums[0], column);
  else if constexpr (HOLDS) {
    float2 taps[TAPS];
    filter_held<SPECTRA, 0, true>(sums, taps, column);
  } else
    filter_ring<SPECTRA, 0>(sums, column);
#pragma unroll
  for (int j = 0; j < SPECTRA; j++) to[j * spectrum_pairs] = sums[j];
}
#define NAMES                                                                                                             \
  input, stride, coefficients, output, spectrum_pairs, antenna_pairs, place_pairs, polarization_pairs, words, spectra, \
      first_unit, coarse_channels, polarizations, reverses

KERNEL __launch_bounds__(THREADS, RESIDENT) sums_batches(PARAMETERS) { sum_pairs<BATCH>(NAMES); }

// Kernel for launches shorter than a batch: one spectrum at a time, bit-identical values.
KERNEL __launch_bounds__(THREADS, RESIDENT) sums_single(PARAMETERS) { sum_pairs<1>(NAMES); }
