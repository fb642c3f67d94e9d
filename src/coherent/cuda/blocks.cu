// Coherent dedispersion: windows of recorded samples, their product with the filters, and the samples kept of each
// filtered window. Transform t of a call is unit t mod units of block t / units. Samples run along x, transforms along y.
#include "voltage.cuh"

// Samples of a call: zeros, then those carried from earlier calls, then new ones. Sample 0 begins the first window.
struct Samples {
  const u8* carried;
  u64 carried_stride;
  const u8* input;
  u64 input_stride, zeros, held, end;

  INLINE Sample at(u64 stream, u64 time) const {
    if (time < zeros || time >= end) return {};
    return time < held ? load(carried + stream * carried_stride, time) : load(input + stream * input_stride, time - held);
  }
};

INLINE float2 multiplied(float2 a, float2 b) { return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }

// Decodes the windows of transforms. TOGETHER real streams are the real and the imaginary part of one transform.
KERNEL __launch_bounds__(256)
    decode_windows(const u8* carried, u64 carried_stride, const u8* input, u64 input_stride, u64 zeros, u64 held, u64 end,
                   u32 points, u32 block, u32 units, u32 together, u64 first, float2* windows) {
  const u32 n = blockIdx.x * 256 + threadIdx.x;
  if (n >= points) return;
  const Samples samples = {carried, carried_stride, input, input_stride, zeros, held, end};
  const u64 transform = first + blockIdx.y, unit = transform % units, time = transform / units * block + n;
#if ENCODING < 5
  const Sample value = samples.at(unit, time);
  windows[(u64)blockIdx.y * points + n] = make_float2(value.re, value.im);
#else
  const float re = samples.at(unit * together, time).re;
  const float im = together == 2 ? samples.at(unit * 2 + 1, time).re : 0.f;
  windows[(u64)blockIdx.y * points + n] = make_float2(re, im);
#endif
}

// Multiplies the spectra, which begin `half` numbers after `products`, by both filters of their recorded channel; axes of
// the filters: recorded channel, copy, bin. The second product replaces the spectrum.
KERNEL __launch_bounds__(256)
    multiply_filters(float2* products, u64 half, const float2* filters, u32 points, u32 units, u32 together, u32 polarizations,
                     u32 coarse_channels, u64 first) {
  const u32 bin = blockIdx.x * 256 + threadIdx.x;
  if (bin >= points) return;
  const u64 unit = (first + blockIdx.y) % units, coarse = unit * together / polarizations % coarse_channels;
  const u64 at = (u64)blockIdx.y * points + bin;
  const float2* filter = filters + 2 * coarse * points + bin;
  const float2 value = products[half + at];
  products[at] = multiplied(value, filter[0]);
  products[half + at] = multiplied(value, filter[points]);
}

// Writes the samples kept of each filtered window: copy z of a stream follows `streams` streams after copy 0.
KERNEL __launch_bounds__(256)
    keep_samples(const float2* products, u64 half, u32 points, u32 overlap, u32 block, u32 units, u32 together, u32 streams,
                 u64 first, u8* output, u64 stride) {
  const u32 n = blockIdx.x * 256 + threadIdx.x, copy = blockIdx.z;
  if (n >= block) return;
  const u64 transform = first + blockIdx.y, unit = transform % units, time = transform / units * block + n;
  const float2 value = products[copy * half + (u64)blockIdx.y * points + overlap + n];
  u8* row = output + ((u64)copy * streams + unit * together) * stride;
#if ENCODING < 5
  ((float2*)row)[time] = value;
#else
  ((float*)row)[time] = value.x;
  if (together == 2) ((float*)(row + stride))[time] = value.y;
#endif
}

// Copies bytes from byte `past` on to the next call's carried samples; streams run along y.
KERNEL __launch_bounds__(256)
    carry_samples(const u8* carried, u64 carried_stride, const u8* input, u64 input_stride, u64 held, u64 past, u64 bytes,
                  u32 streams, u8* next) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= bytes) return;
  for (u64 stream = blockIdx.y; stream < streams; stream += gridDim.y) {
    const u64 from = past + at;
    next[stream * carried_stride + at] =
        from < held ? carried[stream * carried_stride + from] : input[stream * input_stride + from - held];
  }
}
