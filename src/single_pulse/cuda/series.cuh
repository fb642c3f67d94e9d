// Dedispersed series of a batch of windows: the location of their samples and the number of valid ones.
#pragma once
#include "device.cuh"

#if FLOATS
typedef float Sample;
#else
typedef i32 Sample;
#endif

struct Noise {
  double mean, sigma;
};

// Noise statistics that a window is searched with: none valid, too short, the previous window's, or its own.
enum Statistics { ABSENT, NONE, PRECEDING, OWN };

// Samples of one window: those before `split` lie in the history, the others in the plane.
struct Row {
  const Sample *early, *late;
  u32 split;

  INLINE Sample at(u32 x) const {
    const Sample* from = x < split ? early : late;
    return from[x];
  }
  // Calls `take(x -> sample)` with a branch-free accessor if samples `first` to `last` lie in one buffer.
  template <class Take> INLINE void with_place(u32 first, u32 last, Take take) const {
    if (first >= split || last <= split) {
      const Sample* from = first >= split ? late : early;
      take([=](u32 x) { return from[x]; });
    } else {
      take([=](u32 x) { return at(x); });
    }
  }
};

// Series of all trials. Samples count from the start of the batch's first window. Those before `split` lie in the
// history, the others in the plane, whose address is offset so that the same index applies.
struct Series {
  const Sample *history;
  u64 history_stride;
  const Sample *plane;
  u64 plane_stride;
  const u64* ends;
  u64 first, seen;
  u32 split, window, reach, windows;

  // Returns the samples of window `j` of a trial.
  INLINE Row row(u32 dm, u32 j) const {
    u64 start = (u64)j * window;
    return Row{history + dm * history_stride + start, plane + dm * plane_stride + start,
               (u32)(split > start ? smaller(split - start, (u64)0xffffffff) : 0)};
  }
  INLINE Sample at(u32 dm, u64 x) const {
    return x < split ? history[dm * history_stride + x] : plane[dm * plane_stride + x];
  }
  // Returns the valid samples from the start of window `j` to the end of its last boxcars.
  INLINE u32 available(u32 dm, u32 j) const { return available(dm, j, 1); }
  // Like the overload above, for `count` consecutive windows.
  INLINE u32 available(u32 dm, u32 j, u32 count) const {
    u64 end = smaller(ends[dm], seen), start = first + (u64)j * window;
    return end > start ? (u32)smaller(end - start, (u64)count * window + reach) : 0;
  }
  INLINE u32 samples(u32 dm, u32 j) const { return smaller(available(dm, j), window); }
  INLINE bool is_first(u32 j) const { return first == 0 && j == 0; }
  INLINE Statistics statistics(u32 dm, u32 j) const {
    u32 valid = samples(dm, j);
    if (valid == 0) return ABSENT;
    if (is_first(j)) return valid >= 32 ? OWN : NONE;
    return 2 * valid >= window ? OWN : PRECEDING;
  }
  // Returns the noise that window `j` is searched with.
  INLINE Noise noise(const Noise* own, const Noise* carried, u32 dm, u32 j) const {
    Statistics which = statistics(dm, j);
    if (which == OWN) return own[dm * windows + j];
    if (which == PRECEDING) return j > 0 ? own[dm * windows + j - 1] : carried[dm];
    return Noise{0.0, 0.0};
  }
};

#define SERIES_PARAMETERS                                                                                       \
  const Sample *history, u64 history_stride, const Sample *plane, u64 plane_stride, const u64 *ends, u64 first, \
      u64 seen, u32 split, u32 window, u32 reach, u32 windows
#define SERIES \
  Series { history, history_stride, plane, plane_stride, ends, first, seen, split, window, reach, windows }

#if FLOATS
INLINE bool is_finite(float y) { return (__float_as_uint(y) & 0x7f800000) != 0x7f800000; }

// Series of one window with each non-finite sample replaced by a mean: the previous window's mean in the part that
// its boxcars also cover, this window's mean elsewhere.
struct Repaired {
  Series series;
  u32 dm, j;
  float before, now;

  INLINE Repaired(const Series& series, const Noise* own, const Noise* carried, u32 dm, u32 j)
      : series(series), dm(dm), j(j) {
    before = series.is_first(j) ? 0.0f : (float)(j > 0 ? own[dm * series.windows + j - 1].mean : carried[dm].mean);
    now = (float)series.noise(own, carried, dm, j).mean;
    if (series.is_first(j)) before = now;
  }
  INLINE float at(u32 x) const {
    float y = series.at(dm, (u64)j * series.window + x);
    return is_finite(y) ? y : x < series.reach ? before : now;
  }
};
#endif

// Rounds to the nearest integer, halves away from zero.
INLINE double rounded(double x) {
  double size = x < 0.0 ? -x : x;
  if (!(size < 4503599627370496.0)) return x;
  double whole = (double)(i64)size;
  if (size - whole >= 0.5) whole += 1.0;
  return x < 0.0 ? -whole : whole;
}

// Rounds up to an integer.
INLINE double rounded_up(double x) {
  if (!(x < 4503599627370496.0 && x > -4503599627370496.0)) return x;
  double whole = (double)(i64)x;
  return whole < x ? whole + 1.0 : whole;
}

// Threshold of a boxcar's sum in a window.
struct Threshold {
  double expected, deviation, least;

  INLINE Threshold(Noise noise, double snr, u32 width) {
    expected = product((double)width, noise.mean);
    deviation = product(noise.sigma, sqrt((double)width));
    least = expected + product(snr, deviation);
    if (!FLOATS) least = rounded_up(least);
  }
};

// Returns the samples between consecutive starts of a boxcar.
INLINE u32 stride_of(u32 width) { return width < 32 ? 1 : 1u << (27 - __clz(width)); }
