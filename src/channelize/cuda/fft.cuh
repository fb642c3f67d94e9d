// Fourier transforms of 2 to 32 points in one thread's registers.
// Radix 2, decimation in time: input in bit-reversed order, output in natural order. A butterfly takes six
// multiply-adds for any twiddle factor, so the twiddle factors between two passes are free when folded into the
// second pass: sum_c v[c] w^c W_N^(c k) uses the same network with other factors.
#pragma once
#include "device.cuh"

template <int N> INLINE constexpr int reversed(int i) {
  int result = 0;
  for (int bit = 1; bit < N; bit *= 2) result = 2 * result + (i / bit & 1);
  return result;
}

// Replaces (a, b) by (a + w b, a - w b), computing the difference as 2 a minus the sum.
INLINE void butterfly(float2& a, float2& b, float re, float im) {
  const float x = fmaf(-im, b.y, fmaf(re, b.x, a.x)), y = fmaf(im, b.x, fmaf(re, b.y, a.y));
  b.x = fmaf(2.f, a.x, -x);
  b.y = fmaf(2.f, a.y, -y);
  a = make_float2(x, y);
}
INLINE void butterfly_1(float2& a, float2& b) {
  const float2 c = b;
  b = make_float2(a.x - c.x, a.y - c.y);
  a = make_float2(a.x + c.x, a.y + c.y);
}
// Computes a butterfly with w = -i.
INLINE void butterfly_minus_i(float2& a, float2& b) {
  const float2 c = b;
  b = make_float2(a.x - c.y, a.y + c.x);
  a = make_float2(a.x + c.y, a.y - c.x);
}

// Returns cos(2 pi i / 32); `sine` returns the sine.
INLINE constexpr float cosine(int i) {
  constexpr float values[8] = {1.f,
                               0.980785280403230449f,
                               0.923879532511286756f,
                               0.831469612302545237f,
                               0.707106781186547524f,
                               0.555570233019602225f,
                               0.382683432365089772f,
                               0.195090322016128268f};
  return values[i];
}
INLINE constexpr float sine(int i) { return i == 0 ? 0.f : cosine(8 - i); }

// Combines pairs of HALF-point transforms. A separate function per stage keeps every index a compile-time constant.
template <int N, int HALF> INLINE void stage(float2 (&v)[N]) {
#pragma unroll
  for (int pair = 0; pair < N / 2; pair++) {
    const int m = pair % HALF, a = pair / HALF * 2 * HALF + m, angle = m * (16 / HALF);
    if (angle == 0)
      butterfly_1(v[a], v[a + HALF]);
    else if (angle == 8)
      butterfly_minus_i(v[a], v[a + HALF]);
    else if (angle < 8)
      butterfly(v[a], v[a + HALF], cosine(angle & 7), -sine(angle & 7));
    else
      butterfly(v[a], v[a + HALF], -sine(angle & 7), -cosine(angle & 7));
  }
}

template <int N> INLINE void transform(float2 (&v)[N]) {
  if constexpr (N >= 2) stage<N, 1>(v);
  if constexpr (N >= 4) stage<N, 2>(v);
  if constexpr (N >= 8) stage<N, 4>(v);
  if constexpr (N >= 16) stage<N, 8>(v);
  if constexpr (N >= 32) stage<N, 16>(v);
}

// Runs the same stage with factors w^(N/2/HALF) W_(2 HALF)^m. Factors with m >= HALF/2 are -i times those with m -
// HALF/2.
template <int N, int HALF> INLINE void twiddled_stage(float2 (&v)[N], const float4* factors, int step) {
#pragma unroll
  for (int m = 0; m < HALF / 2; m += 2) {
    const float4 w = factors[(HALF / 2 + m) / 2 * step];
#pragma unroll
    for (int i = 0; i < N / 2 / HALF; i++) {
      const int a = i * 2 * HALF + m;
      butterfly(v[a], v[a + HALF], w.x, w.y);
      butterfly(v[a + HALF / 2], v[a + HALF + HALF / 2], w.y, -w.x);
      butterfly(v[a + 1], v[a + 1 + HALF], w.z, w.w);
      butterfly(v[a + 1 + HALF / 2], v[a + 1 + HALF + HALF / 2], w.w, -w.z);
    }
  }
}

// Transforms v[c] w^c. `factors` holds N / 4 words of two factors each, `step` words apart: w^(N/2), w^(N/4), then
// those of each stage.
template <int N> INLINE void twiddled_transform(float2 (&v)[N], const float4* factors, int step) {
  const float4 w = factors[0];
#pragma unroll
  for (int a = 0; a < N; a += 2) butterfly(v[a], v[a + 1], w.x, w.y);
#pragma unroll
  for (int a = 0; a < N; a += 4) {
    butterfly(v[a], v[a + 2], w.z, w.w);
    butterfly(v[a + 1], v[a + 3], w.w, -w.z);
  }
  twiddled_stage<N, 4>(v, factors, step);
  twiddled_stage<N, 8>(v, factors, step);
  if constexpr (N == 32) twiddled_stage<N, 16>(v, factors, step);
}

// Transforms the sums of two neighbouring columns over their N values, for each spectrum, and stores the results in
// shared memory. SPECTRUM and ROW are the strides, in values, of spectra and of output indices of the transform.
template <int SPECTRUM, int ROW, int N, int SPECTRA> INLINE void store_transforms(float4 (&sums)[N][SPECTRA], float2* own) {
#pragma unroll
  for (int j = 0; j < SPECTRA; j++) {
    float2 first[N], second[N];
#pragma unroll
    for (int r = 0; r < N; r++) {
      const float4 sum = sums[reversed<N>(r)][j];
      first[r] = make_float2(sum.x, sum.y);
      second[r] = make_float2(sum.z, sum.w);
    }
    transform<N>(first);
    transform<N>(second);
#pragma unroll
    for (int r = 0; r < N; r++)
      *(float4*)(own + j * SPECTRUM + r * ROW) = make_float4(first[r].x, first[r].y, second[r].x, second[r].y);
  }
}
