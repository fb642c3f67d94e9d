// Output forms of a spectrum: complex values, sums of detected products, or requantized integers.
#pragma once
#include "fft.cuh"
#include "fir.cuh"

#define FORM_SPECTRA 0
#define FORM_DETECTED 1
#define FORM_REQUANTIZED 2

// Products of polarizations X and Y. All but POWER need both in one block (POLARIZATIONS 2).
#define PRODUCTS_POWER 0
#define PRODUCTS_I 1
#define PRODUCTS_IQUV_LINEAR 2
#define PRODUCTS_IQUV_CIRCULAR 3
#define PRODUCTS_AABBCRCI 4

struct Arguments {
  // First sample under the first window of stream 0, and bytes from stream to stream.
  const u8* input;
  u64 stride;
  // First output row; elements from row to row and from product to product.
  u8* output;
  u64 row_elements, product_elements;
  // Count of saturated values per row element, or null.
  u64* saturated;
  const float* coefficients;
  const float4* factors;
  // For each unit (a stream, or two streams whose products are formed): offset of its first element in a row, and
  // offset of its gains.
  const u32* places;
  // Gain of each element of a polarization.
  const float* gains;
  // Spectra per launch, spectra per output row, and units.
  u32 spectra, row_spectra, units;
  // A unit's spectra are divided into items of `item_spectra` spectra and `item_batches` batches; the last item may
  // be shorter.
  u32 items, item_spectra, item_batches, last_batches;
};

// One batch of a block: `start` is its first spectrum; the first `skipped` spectra are already written.
struct Batch {
  u32 unit, start, skipped;
};

// Offsets of a unit's first element in a row and of its gains.
struct UnitOffsets {
  u32 element, gain;
};

// A line holds frequencies `line` + i LINES. Frequency m is stored at index m ^ ORDER.
constexpr u32 LINES = POINTS / SIDE;
INLINE u32 place_of(u32 line) { return line ^ ORDER % LINES; }
INLINE constexpr u32 place_in_line(u32 i) { return (i ^ ORDER / LINES) * LINES; }

#if FORM == FORM_REQUANTIZED
// A float of this magnitude (1.5 x 2^23) has unit spacing, so adding it rounds to a whole number, ties to even.
constexpr float WHOLE = 12582912.f;
constexpr i32 MOST = (1 << (BITS - 1)) - 1;

// Returns the offset of a rounded value, given as the bits of `value + WHOLE`, above the least integer. The result
// exceeds 2 MOST + 1 for values out of range and for NaN.
INLINE u32 above_least(u32 whole) { return whole - (0x4B400000u - MOST - 1); }

// Clips a component to the range; NaN becomes 0.
INLINE u32 clipped(float value) {
  const float whole = fminf(fmaxf(value, -MOST - 1.f), (float)MOST) + WHOLE;
  return value == value ? __float_as_uint(whole) : 0;
}

INLINE void write_integer(u8* to, u32 at, u32 re, u32 im) {
  if (BITS == 8)
    __stcs((u16*)to + at, (u16)__byte_perm(re, im, 0x0040));
  else
    __stcs(to + at, (u8)(re << 4 | (im & 15)));
}

// Writes one line of a spectrum as requantized integers; a spectrum is one output row.
INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, const UnitOffsets& offsets, u32 line) {
  const u64 first = offsets.element + place_of(line);
  const float* gains = a.gains + offsets.gain + place_of(line);
  u8* to = a.output + (row * a.row_elements + first) * (BITS / 4);
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    const float gain = __ldg(gains + place_in_line(i));
    u32 re = __float_as_uint(fmaf(v[i].x, gain, WHOLE)), im = __float_as_uint(fmaf(v[i].y, gain, WHOLE));
    if ((above_least(re) | above_least(im)) > 2 * MOST + 1) {
      re = clipped(v[i].x * gain);
      im = clipped(v[i].y * gain);
      atomicAdd(a.saturated + first + place_in_line(i), 1ull);
    }
    write_integer(to, place_in_line(i), re, im);
  }
}
#elif FORM == FORM_SPECTRA
// Writes one line of a spectrum as complex values; a spectrum is one output row.
INLINE void write_line(const Arguments& a, const float2 (&v)[SIDE], u64 row, const UnitOffsets& offsets, u32 line) {
  float2* to = (float2*)a.output + row * a.row_elements + offsets.element + place_of(line);
#pragma unroll
  for (int i = 0; i < SIDE; i++) __stcs(to + place_in_line(i), v[i]);
}

#else
// Returns the offset of a line's powers in the storage of its own complex values. Alternate half warps use the banks
// that the others leave free.
INLINE u32 power_offset(u32 spectrum, u32 line) {
  const u32 half = SIDE == 16 && RADIX == 1 ? spectrum : line / 16;
  return half % 2 * (SIDE + 1);
}

// Stores a line's powers (one polarization) or values (two) over the line's own values in shared memory, for
// summation.
INLINE void leave_line(const float2 (&v)[SIDE], float2* own, u32 spectrum, u32 line) {
  float* powers = (float*)own + power_offset(spectrum, line);
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    if (POLARIZATIONS == 1)
      powers[i] = fmaf(v[i].x, v[i].x, v[i].y * v[i].y);
    else
      own[i] = v[i];
  }
}

constexpr int PRODUCT_COUNT = PRODUCT == PRODUCTS_POWER || PRODUCT == PRODUCTS_I ? 1 : 4;

// Adds the products of frequency `i` of one spectrum. The other polarization's value lies `second` values further.
INLINE void add_products(float (&sums)[PRODUCT_COUNT], const float2* line, u32 i, u32 offset, int second) {
  if constexpr (POLARIZATIONS == 1) {
    sums[0] += ((const float*)line)[i + offset];
  } else {
    const float2 x = line[i], y = line[second + i];
    const float xx = fmaf(x.x, x.x, x.y * x.y), yy = fmaf(y.x, y.x, y.y * y.y);
    if constexpr (PRODUCT_COUNT == 1) {
      sums[0] += xx + yy;
    } else {
      const float re = fmaf(x.x, y.x, x.y * y.y), im = fmaf(x.y, y.x, -(x.x * y.y));
      if constexpr (PRODUCT == PRODUCTS_IQUV_LINEAR)
        sums[0] += xx + yy, sums[1] += xx - yy, sums[2] += 2.f * re, sums[3] += 2.f * im;
      else if constexpr (PRODUCT == PRODUCTS_IQUV_CIRCULAR)
        sums[0] += xx + yy, sums[1] += 2.f * re, sums[2] += 2.f * im, sums[3] += xx - yy;
      else
        sums[0] += xx, sums[1] += yy, sums[2] += re, sums[3] += im;
    }
  }
}

// Adds a batch's spectra to their output rows in spectrum order. `values` holds the lines of all spectra, RADIX rows
// of PITCH values each. A sum that continues in a later batch is kept in the output.
template <int SPECTRA, int PITCH>
INLINE void add_spectra(const Arguments& a, const Batch& batch, const UnitOffsets& offsets, const float2* values) {
  static_assert(THREADS % LINES == 0, "a thread's frequencies share a line");
  constexpr int SECOND = SPECTRA * RADIX * PITCH;
  const u32 first = batch.start + batch.skipped, row = first / a.row_spectra, position = first - row * a.row_spectra;
  const u32 line = threadIdx.x % LINES;
  const float2* own = values + line % RADIX * PITCH + (SIDE + 1) * (line / RADIX);
  float* to = (float*)a.output + row * a.row_elements + offsets.element + place_of(line);
  const bool is_whole = batch.skipped == 0 && position + SPECTRA <= a.row_spectra;
#pragma unroll(SIDE * LINES / THREADS <= 4 ? SIDE * LINES / THREADS : 4)
  for (u32 i = threadIdx.x / LINES; i < SIDE; i += THREADS / LINES) {
    float* sum = to + place_in_line(i);
    float sums[PRODUCT_COUNT];
#pragma unroll
    for (int p = 0; p < PRODUCT_COUNT; p++) sums[p] = position ? sum[p * a.product_elements] : 0.f;
    if (is_whole) {
#pragma unroll
      for (int j = 0; j < SPECTRA; j++) add_products(sums, own + j * RADIX * PITCH, i, power_offset(j, line), SECOND);
    } else {
      u32 done = position;
#pragma unroll 1
      for (int j = batch.skipped; j < SPECTRA; j++) {
        add_products(sums, own + j * RADIX * PITCH, i, power_offset(j, line), SECOND);
        if (++done < a.row_spectra) continue;
#pragma unroll
        for (int p = 0; p < PRODUCT_COUNT; p++) {
          sum[p * a.product_elements] = sums[p];
          sums[p] = 0.f;
        }
        done = 0;
        sum += a.row_elements;
      }
      if (done == 0) continue;
    }
#pragma unroll
    for (int p = 0; p < PRODUCT_COUNT; p++) sum[p * a.product_elements] = sums[p];
  }
}
#endif
