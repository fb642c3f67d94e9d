// Second half of a long transform: transforms lines of SIDE x SIDE values from split_sums.cu into the output order.
//   Y_s[k1 + FIRST k2] = sum_{c2} z_s[k1][c2] W_LINE^(c2 k2);  c2 = c3 SIDE + c4, k2 = k3 + SIDE k4
//
// A block transforms LINES neighbouring k1 of one spectrum, so that LINES neighbouring frequencies are stored
// together.
//  1. SIDE lanes per line transform over c3 and store the line with pitch SIDE + 1.
//  2. Lanes of neighbouring k1 transform over c4, with twiddle exponent k3 c4 / LINE.
#include "fft.cuh"

constexpr int LINE = SIDE * SIDE, FIRST = POINTS / LINE, THREADS = LINES * SIDE;
// Pitch of lines in values, padded so that lanes of neighbouring k1 hit different shared-memory banks.
constexpr int PITCH = SIDE * (SIDE + 1) + (LINES >= 16 ? 1 : 16 / LINES);
static_assert(FIRST % LINES == 0, "blocks share the lines");

// Frequency m is stored at index m ^ ORDER.
constexpr u32 STEP = FIRST * SIDE;

KERNEL __launch_bounds__(THREADS, RESIDENT)
    split_lines(const float2* values, const float4* factors, u32 streams, u32 polarizations, u64 row_elements,
                u64 antenna_elements, u64 place_elements, u64 product_elements, u32 first_unit, u32 coarse_channels,
                float2* output) {
  SHARED_MEMORY(memory);
  float2* lines = (float2*)memory;
  const u32 group = blockIdx.x % (FIRST / LINES), transform_index = blockIdx.x / (FIRST / LINES);
  const u32 spectrum = transform_index / streams, stream = transform_index % streams;
  const u32 thread = threadIdx.x;
  float2 v[SIDE];
  {
    const u32 line = thread / SIDE, lane = thread % SIDE;
    const float2* from = values + (u64)transform_index * POINTS + (group * LINES + line) * LINE + lane;
#pragma unroll
    for (int i = 0; i < SIDE; i++) v[i] = __ldcg(from + reversed<SIDE>(i) * SIDE);
    transform<SIDE>(v);
    float2* to = lines + line * PITCH + lane;
#pragma unroll
    for (int i = 0; i < SIDE; i++) to[i * (SIDE + 1)] = v[i];
  }
  __syncthreads();
  const u32 line = thread % LINES, k3 = thread / LINES;
#pragma unroll
  for (int i = 0; i < SIDE; i++) v[i] = lines[line * PITCH + k3 * (SIDE + 1) + reversed<SIDE>(i)];
  twiddled_transform<SIDE>(v, factors + k3, SIDE);
  const u32 unit = first_unit + stream / polarizations, frequency = group * LINES + line + FIRST * k3;
  float2* to = output + spectrum * row_elements + unit / coarse_channels * antenna_elements +
               unit % coarse_channels * place_elements + stream % polarizations * product_elements +
               (frequency ^ ORDER % STEP);
#pragma unroll
  for (int i = 0; i < SIDE; i++) to[(i ^ (int)(ORDER / STEP)) * STEP] = v[i];
}
