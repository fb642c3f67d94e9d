// Delay correction and corner turn of a filter bank's spectra: axes time, antenna, polarization, channel -> channel,
// input, time. BITS, POLARIZATIONS; TURNS: 1 with delays.
//
// A block processes 32 channels of an antenna at 32 words of times. Lanes are channels for loads and words for
// stores, so that it loads rows of 256 bytes and stores rows of 128 (floats: 256). Static shared memory: 8.5 KiB per
// polarization, floats 17.
#include "sample.cuh"

constexpr u32 LANES = 32, WARPS = 8, WORDS = 32, TIMES = WORDS * GROUP;

// Spectra of all antennas of one encoding.
struct Spectra {
  const float2* first;
  u64 row_elements;
  u32 times, channels, fine;
};

// Loads one word's times of a channel and computes the output word of each polarization.
INLINE void turn_word(const Spectra& spectra, const float2* from, u32 left, const Slope* slopes, u32 k, const float2* gains,
                      Word (&words)[POLARIZATIONS], u32 (&counts)[POLARIZATIONS]) {
  float2 values[GROUP][POLARIZATIONS];
#pragma unroll
  for (u32 i = 0; i < GROUP; i++)
#pragma unroll
    for (u32 p = 0; p < POLARIZATIONS; p++)
      values[i][p] = i < left ? __ldcs(from + i * spectra.row_elements + p * spectra.channels) : make_float2(0.f, 0.f);
#pragma unroll
  for (u32 p = 0; p < POLARIZATIONS; p++) words[p] = nothing();
#pragma unroll
  for (u32 i = 0; i < GROUP; i++) {
#if TURNS
    const float2 turn = phasor((u32)((slopes[i].start + k * slopes[i].step) >> 32), slopes[i].unit);
#endif
#pragma unroll
    for (u32 p = 0; p < POLARIZATIONS; p++) {
#if TURNS
      const float2 factor = multiplied(turn, gains[p]);
#else
      const float2 factor = gains[p];
#endif
      put(words[p], rounded(multiplied(values[i][p], factor), counts[p]), i);
    }
  }
}

KERNEL __launch_bounds__(256)
    turn_spectra(const float2* first, u64 row_elements, u32 times, u32 channels, u32 fine, const Delay* delays,
                 u64 delay_stride, const double* zeros, double first_hz, double step_hz, const float2* gains,
                 const u32* inputs, u8* to, u64 channel_stride, u64 input_stride, u64* saturated) {
  __shared__ Word tile[POLARIZATIONS][LANES][WORDS + 1];
  const Spectra spectra = {first, row_elements, times, channels, fine};
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 groups = parts(fine, LANES), coarse = blockIdx.x / groups, group = blockIdx.x % groups * LANES;
  const u32 start = blockIdx.y * TIMES, antenna = blockIdx.z, k = group + lane, channel = coarse * fine + k;
#if TURNS
  __shared__ Slope slopes[TIMES];
  const Band band = {zeros, first_hz, step_hz};
  if (threadIdx.x < TIMES && start + threadIdx.x < times)
    slopes[threadIdx.x] = slope(delays[antenna * delay_stride + start + threadIdx.x], band, coarse);
  __syncthreads();
#else
  const Slope* slopes = nullptr;
#endif
  u32 counts[POLARIZATIONS] = {};
  if (k < fine) {
    float2 own[POLARIZATIONS];
#pragma unroll
    for (u32 p = 0; p < POLARIZATIONS; p++) own[p] = __ldg(gains + (u64)(antenna * POLARIZATIONS + p) * channels + channel);
    const float2* from = first + start * row_elements + (u64)antenna * POLARIZATIONS * channels + channel;
#pragma unroll
    for (u32 word = warp; word < WORDS; word += WARPS) {
      const u32 at = word * GROUP, left = start + at < times ? times - start - at : 0;
      Word words[POLARIZATIONS];
      turn_word(spectra, from + at * row_elements, left, slopes + at, k, own, words, counts);
#pragma unroll
      for (u32 p = 0; p < POLARIZATIONS; p++) tile[p][lane][word] = words[p];
    }
  }
  __syncthreads();
  const Natural natural = {to, channel_stride, input_stride};
  const u32 input = inputs[antenna], time = start + lane * GROUP;
#pragma unroll
  for (u32 row = warp; row < POLARIZATIONS * LANES; row += WARPS) {
    const u32 p = row / LANES, c = row % LANES;
    if (group + c < fine && time < times)
      *(Word*)(natural.row(coarse * fine + group + c, input + p) + (u64)time * SAMPLE_BYTES) = tile[p][c][lane];
  }
  if (BITS < 32) {
#pragma unroll
    for (u32 p = 0; p < POLARIZATIONS; p++) add_count(saturated + input + p, counts[p]);
  }
}
