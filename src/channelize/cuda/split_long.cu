// Second half of a long transform, as in split_lines.cu, for lines of SIDE_1 x SIDE_2 x SIDE_3 values:
//   c2 = (c3 SIDE_2 + c4) SIDE_3 + c5, k2 = k3 + SIDE_1 (k4 + SIDE_2 k5)
//
// A block transforms LINES neighbouring k1 of one spectrum over c3, then over c4 with twiddle exponent k3 c4 /
// (SIDE_1 SIDE_2), then over c5 with twiddle exponent (k3 + SIDE_1 k4) c5 / LINE. In the last step, neighbouring
// lanes have neighbouring k1.
#include "fft.cuh"

constexpr int LINE = SIDE_1 * SIDE_2 * SIDE_3, FIRST = POINTS / LINE;
// Pitches of c4, k3 and lines in values, padded so that neighbouring lanes hit different shared-memory banks.
constexpr int PITCH_4 = SIDE_3 + 1, PITCH_3 = SIDE_2 * PITCH_4, PITCH = SIDE_1 * PITCH_3 + (LINES > 1 ? 16 / LINES : 0);
static_assert(FIRST % LINES == 0 && LINES <= 16, "blocks share the lines");
// Frequency m is stored at index m ^ ORDER.
constexpr u32 STEP = FIRST * SIDE_1 * SIDE_2;

KERNEL __launch_bounds__(THREADS, RESIDENT)
    split_long_lines(const float2* values, const float4* row_factors, const float4* line_factors, u32 streams, u32 polarizations,
               u64 row_elements, u64 antenna_elements, u64 place_elements, u64 product_elements, u32 first_unit,
               u32 coarse_channels, float2* output) {
  SHARED_MEMORY(memory);
  float2* lines = (float2*)memory;
  const u32 group = blockIdx.x % (FIRST / LINES), transform_index = blockIdx.x / (FIRST / LINES);
  const u32 spectrum = transform_index / streams, stream = transform_index % streams;
  const float2* from = values + (u64)transform_index * POINTS + group * LINES * LINE;
#pragma unroll
  for (u32 round = 0; round < LINES * LINE / SIDE_1 / THREADS; round++) {
    const u32 index = round * THREADS + threadIdx.x, own = index / (SIDE_2 * SIDE_3), rest = index % (SIDE_2 * SIDE_3);
    float2 v[SIDE_1];
#pragma unroll
    for (int i = 0; i < SIDE_1; i++) v[i] = __ldcg(from + own * LINE + reversed<SIDE_1>(i) * SIDE_2 * SIDE_3 + rest);
    transform<SIDE_1>(v);
    float2* to = lines + own * PITCH + rest / SIDE_3 * PITCH_4 + rest % SIDE_3;
#pragma unroll
    for (int i = 0; i < SIDE_1; i++) to[i * PITCH_3] = v[i];
  }
  __syncthreads();
#pragma unroll
  for (u32 round = 0; round < LINES * LINE / SIDE_2 / THREADS; round++) {
    const u32 index = round * THREADS + threadIdx.x, c5 = index % SIDE_3, k3 = index / SIDE_3 % SIDE_1, own = index / SIDE_3 / SIDE_1;
    float2 v[SIDE_2];
    float2* at = lines + own * PITCH + k3 * PITCH_3 + c5;
#pragma unroll
    for (int i = 0; i < SIDE_2; i++) v[i] = at[reversed<SIDE_2>(i) * PITCH_4];
    twiddled_transform<SIDE_2>(v, row_factors + k3, SIDE_1);
#pragma unroll
    for (int i = 0; i < SIDE_2; i++) at[i * PITCH_4] = v[i];
  }
  __syncthreads();
  const u32 unit = first_unit + stream / polarizations;
  float2* out = output + spectrum * row_elements + unit / coarse_channels * antenna_elements +
                unit % coarse_channels * place_elements + stream % polarizations * product_elements;
#pragma unroll
  for (u32 round = 0; round < LINES * LINE / SIDE_3 / THREADS; round++) {
    const u32 index = round * THREADS + threadIdx.x, own = index % LINES, k4 = index / LINES % SIDE_2, k3 = index / LINES / SIDE_2;
    float2 v[SIDE_3];
    const float2* at = lines + own * PITCH + k3 * PITCH_3 + k4 * PITCH_4;
#pragma unroll
    for (int i = 0; i < SIDE_3; i++) v[i] = at[reversed<SIDE_3>(i)];
    twiddled_transform<SIDE_3>(v, line_factors + k3 + SIDE_1 * k4, SIDE_1 * SIDE_2);
    float2* to = out + ((group * LINES + own + FIRST * (k3 + SIDE_1 * k4)) ^ ORDER % STEP);
#pragma unroll
    for (int i = 0; i < SIDE_3; i++) to[(i ^ (int)(ORDER / STEP)) * STEP] = v[i];
  }
}
