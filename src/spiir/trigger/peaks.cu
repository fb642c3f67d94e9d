// Finds the peaks of each template's signal-to-noise ratio and measures them. Blocks have 256 threads and use no
// shared memory. `screen`: templates along x, 2048 samples along y, 256 samples per warp. `measure`: one warp per
// peak. A row of the series is the retained tail of earlier blocks followed by the new block; positions count from
// the first retained sample.
#include "device.cuh"

const u32 THREADS = 256;
// Samples over which a warp computes a maximum, samples per lane, and number of such stretches per warp.
const u32 STRETCH = 128;
const u32 EACH = STRETCH / 32;
const u32 STRETCHES = 2;
// Interpolation filters: taps on either side, taps, trial positions per sample, and filters (one extra position at
// each end).
const i32 HALF = 8;
const i32 TAPS = 2 * HALF + 1;
const float STEPS = 16.0f;
const u32 ROWS = 19;
const u32 ALL = 0xffffffff;

// Computes |z|^2 with the rounding of the host code; 0 if the result is not finite.
INLINE float power_of(float2 z) {
  const float power = __fadd_rn(__fmul_rn(z.x, z.x), __fmul_rn(z.y, z.y));
  return power < __uint_as_float(0x7f800000) ? power : 0.0f;
}

// Time series of one template: the retained tail and the new block.
struct Series {
  const float2 *tail, *block;
  i32 kept, known;
  INLINE float2 value(i32 place) const { return place < kept ? tail[place] : block[place - kept]; }
  // Returns 0 outside the series.
  INLINE float power(i32 place) const { return place < 0 || place >= known ? 0.0f : power_of(value(place)); }
  // Returns 0 outside the series and where the power is not finite.
  INLINE float2 at(i32 place) const {
    const float2 nothing = make_float2(0.0f, 0.0f);
    if (place < 0 || place >= known) return nothing;
    const float2 z = value(place);
    return power_of(z) > 0.0f ? z : nothing;
  }
};

// Peak and its measured values.
struct Found {
  u32 row, place;
  float offset, re, im, xi2;
};

// Expected shape of a template's signal-to-noise ratio around its own peak (its autocorrelation).
struct Shape {
  const float2* values;
  i32 half;
  float norm, shift;
};

INLINE void add(float2& sum, float tap, float2 z) {
  sum.x = fmaf(tap, z.x, sum.x);
  sum.y = fmaf(tap, z.y, sum.y);
}

// Tells whether the power at `place` is the maximum within the window; of equal maxima the earliest counts.
// Warp-collective.
INLINE bool is_greatest(const Series& series, i32 place, float here, u32 window) {
  for (u32 round = 0; round < window; round += STRETCH) {
    bool beaten = false;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
      const i32 away = (i32)(round + k * 32 + threadIdx.x % 32 + 1);
      const bool counts = away <= (i32)window;
      const float before = counts ? series.power(place - away) : -1.0f, after = counts ? series.power(place + away) : -1.0f;
      beaten = beaten || !(here > before && here >= after);
    }
    if (__any_sync(ALL, beaten)) return false;
  }
  return true;
}

// Appends the sample at `place` to the list if it is a peak.
INLINE void list_peak(const Series& series, u32 row, i32 place, float here, u32 window, u32* count, Found* found, u32 room) {
  if (!is_greatest(series, place, here, window) || threadIdx.x % 32 != 0) return;
  const u32 slot = atomicAdd(count, 1u);
  if (slot < room) found[slot].row = row, found[slot].place = (u32)place;
}

// Finds the maximum of |z| within half a sample of `place` and returns its offset in samples: the best of 17 trial
// positions, refined by a parabola through the adjacent ones. Each lane evaluates one position.
INLINE float peak_offset(const Series& series, const float* rows, i32 place) {
  const u32 row = smaller(threadIdx.x % 32, ROWS - 1);
  float2 z = make_float2(0.0f, 0.0f);
#pragma unroll
  for (i32 tap = 0; tap < TAPS; tap++) add(z, rows[row * TAPS + tap], series.at(place + tap - HALF));
  const float power = z.x * z.x + z.y * z.y;
  u32 best = 1;
  float here = __shfl_sync(ALL, power, 1);
  for (u32 other = 2; other < ROWS - 1; other++) {
    const float there = __shfl_sync(ALL, power, other);
    if (there > here) here = there, best = other;
  }
  const float before = __shfl_sync(ALL, power, best - 1), after = __shfl_sync(ALL, power, best + 1);
  const float bend = before - 2.0f * here + after;
  const float step = bend < 0.0f ? 0.5f * (before - after) / bend : 0.0f;
  const float whole = ((float)best - 1.0f) - STEPS / 2.0f;
  return fminf(fmaxf(whole + fminf(fmaxf(step, -0.5f), 0.5f), -STEPS / 2.0f), STEPS / 2.0f) / STEPS;
}

// Computes the filter that evaluates the series at an offset of at most half a sample, by a parabola through each
// tap.
INLINE void filter_at(float (&taps)[TAPS], const float* rows, float offset) {
  const float place = fminf(fmaxf(offset * STEPS, -STEPS / 2.0f), STEPS / 2.0f), step = place - roundf(place);
  const float* here = rows + (u32)(roundf(place) + STEPS / 2.0f + 1.0f) * TAPS;
  const float before = 0.5f * step * (step - 1.0f), middle = 1.0f - step * step, after = 0.5f * step * (step + 1.0f);
#pragma unroll
  for (i32 tap = 0; tap < TAPS; tap++) taps[tap] = before * here[tap - TAPS] + middle * here[tap] + after * here[tap + TAPS];
}

// Applies a filter to the series with the middle tap at `place`.
INLINE float2 filtered(const Series& series, const float (&taps)[TAPS], i32 place) {
  float2 z = make_float2(0.0f, 0.0f);
#pragma unroll
  for (i32 tap = 0; tap < TAPS; tap++) add(z, taps[tap], series.at(place + tap - HALF));
  return z;
}

// Sums over the lanes of a warp; every lane gets the result.
INLINE double sum_of(double own) {
#pragma unroll
  for (i32 lanes = 16; lanes > 0; lanes /= 2) own += __shfl_xor_sync(ALL, own, lanes);
  return own;
}

// Computes xi^2: the mean square of the residual around a peak after subtracting the template's own shape, divided by
// the value expected for noise.
INLINE float remains(const Series& series, const Shape& shape, const float (&taps)[TAPS], i32 middle, float2 z) {
  const i32 all = 2 * shape.half + 1, first = middle - shape.half;
  // Only samples inside the series count.
  const i32 end = larger(0, smaller(series.known - first, all)), begin = smaller(larger(0, -first), end);
  double left = 0.0, norm = 0.0;
  for (i32 m = begin + (i32)(threadIdx.x % 32); m < end; m += 32) {
    const float2 a = shape.values[m], moved = filtered(series, taps, first + m);
    const float re = moved.x - (z.x * a.x - z.y * a.y), im = moved.y - (z.x * a.y + z.y * a.x);
    left += (double)(re * re + im * im);
    norm += 2.0 - 2.0 * (double)(a.x * a.x + a.y * a.y);
  }
  left = sum_of(left);
  norm = end - begin == all ? (double)shape.norm : sum_of(norm);
  const double most = (double)__uint_as_float(0x7f7fffff);
  return norm > 0.0 ? (float)smaller(left / norm, most) : 1.0f;
}

INLINE Found measured(const Series& series, const Shape& shape, const float* rows, u32 row, i32 place) {
  const float offset = peak_offset(series, rows, place) - shape.shift, whole = roundf(offset);
  float taps[TAPS];
  filter_at(taps, rows, offset - whole);
  const i32 middle = place + (i32)whole;
  const float2 z = filtered(series, taps, middle);
  return Found{row, (u32)place, offset, z.x, z.y, remains(series, shape, taps, middle, z)};
}

// Lists the peaks at positions from `from` to before `until`, in any order.
KERNEL __launch_bounds__(THREADS, 6)
    screen(const float2* tails, u32 tail_stride, u32 kept, const float2* z, u64 stride, u32 times, u32 from, u32 until,
           float threshold, u32 window, u32* count, Found* found, u32 room) {
  const u32 row = blockIdx.x, lane = threadIdx.x % 32;
  const Series series{tails + (u64)row * tail_stride, z + row * stride, (i32)kept, (i32)(kept + times)};
  const u32 first = from + (blockIdx.y * (THREADS / 32) + threadIdx.x / 32) * STRETCH * STRETCHES;
  float powers[STRETCHES][EACH];
#pragma unroll
  for (u32 k = 0; k < STRETCHES * EACH; k++) {
    const u32 place = first + k * 32 + lane;
    powers[k / EACH][k % EACH] = place < until ? power_of(series.value((i32)place)) : 0.0f;
  }
#pragma unroll
  for (u32 stretch = 0; stretch < STRETCHES; stretch++) {
    const u32 begin = first + stretch * STRETCH;
    float most = 0.0f;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) most = fmaxf(most, powers[stretch][k]);
    if (!__any_sync(ALL, most >= threshold)) continue;
    if (window + 1 >= STRETCH) {
      // At most one peak fits in a stretch, so only the first of the maxima can be one. The bit patterns of positive
      // floats have the order of their values.
      const float here = __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(most)));
      u32 place = 0xffffffff;
#pragma unroll
      for (u32 k = EACH; k-- > 0;)
        if (powers[stretch][k] == here) place = begin + k * 32 + lane;
      list_peak(series, row, (i32)__reduce_min_sync(ALL, place), here, window, count, found, room);
    } else {
#pragma unroll
      for (u32 k = 0; k < EACH; k++)
        for (u32 hits = __ballot_sync(ALL, powers[stretch][k] >= threshold); hits != 0; hits &= hits - 1) {
          const u32 other = __ffs((i32)hits) - 1;
          const float here = __shfl_sync(ALL, powers[stretch][k], other);
          list_peak(series, row, (i32)(begin + k * 32 + other), here, window, count, found, room);
        }
    }
  }
}

// Measures the listed peaks.
KERNEL __launch_bounds__(THREADS, 2)
    measure(const float2* tails, u32 tail_stride, u32 kept, const float2* z, u64 stride, u32 times, const float* rows,
            const float2* shapes, u32 shape_stride, const u32* halves, const float* norms, const float* shifts, const u32* count,
            Found* found, u32 room) {
  const u32 warps = gridDim.x * (THREADS / 32), listed = smaller(*count, room);
  for (u32 slot = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; slot < listed; slot += warps) {
    const u32 row = found[slot].row, place = found[slot].place;
    const Series series{tails + (u64)row * tail_stride, z + row * stride, (i32)kept, (i32)(kept + times)};
    const Shape shape{shapes + (u64)row * shape_stride, (i32)halves[row], norms[row], shifts[row]};
    const Found one = measured(series, shape, rows, row, (i32)place);
    __syncwarp();
    if (threadIdx.x % 32 == 0) found[slot] = one;
  }
}

// Copies `count` samples from position `first` on to the tail for the next block.
KERNEL __launch_bounds__(THREADS)
    retain(const float2* tails, u32 tail_stride, u32 kept, const float2* z, u64 stride, u32 times, u32 first, u32 count,
         float2* next) {
  const u32 row = blockIdx.x, at = blockIdx.y * THREADS + threadIdx.x;
  const Series series{tails + (u64)row * tail_stride, z + row * stride, (i32)kept, (i32)(kept + times)};
  if (at < count) next[(u64)row * tail_stride + at] = series.value((i32)(first + at));
}
